"""The target answers training prompts with the project's own batched engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from dcoco_core.decode import decode
from dcoco_core.target.interface import TargetModel
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.target.verifier import VerifierSettings
from dcoco_core.training.answers import is_loop
from dcoco_core.training.prepare import shard_index, top_tokens
from dcoco_core.training.recording import RecordedText, RecordingTarget, RecordingVerifier
from dcoco_core.training.shards import SequenceInfo, ShardWriter, recorded_prompts
from dcoco_core.types import Limits, Request, SamplingParams


@dataclass(frozen=True, slots=True)
class GenerateSettings:
    """What one run of `generate` makes.

    Attributes:
        temperatures: each prompt is answered once, at the one its hash picks.
        top_k: candidates of a sampled token.
        max_tokens: an answer is cut there, or ends at the end token.
        num_rows: sequences decoded together.
        max_prompt_tokens: longer prompts are left out.
        prefill_chunk: prompt tokens of one step.
    """

    temperatures: tuple[float, ...] = (0.0, 0.7)
    top_k: int = 50
    max_tokens: int = 176
    num_rows: int = 64
    max_prompt_tokens: int = 300
    prefill_chunk: int = 512


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt to answer: its source, its tokens, and how to sample the answer."""

    src: str
    prompt_ids: tuple[int, ...]
    temperature: float


def questions(
    prompts: Sequence[tuple[str, str]], tokenizer: TargetTokenizer, settings: GenerateSettings
) -> list[Question]:
    """Tokenised chats of (source, prompt) pairs, each once, in an order that mixes the sources."""
    found: dict[tuple[int, ...], Question] = {}
    for src, prompt in prompts:
        ids = tuple(tokenizer.encode_chat([{"role": "user", "content": prompt}]))
        if len(ids) <= settings.max_prompt_tokens:
            pick = _hash(ids) % len(settings.temperatures)
            found.setdefault(ids, Question(src, ids, settings.temperatures[pick]))
    return sorted(found.values(), key=lambda question: _hash(question.prompt_ids))


def unanswered(todo: Sequence[Question], folder: Path) -> list[Question]:
    """The questions that the shards in `folder` hold no answer of."""
    done = recorded_prompts(folder)
    return [question for question in todo if question.prompt_ids not in done]


def answer_request(
    request_id: str, question: Question, stop_ids: frozenset[int], settings: GenerateSettings
) -> Request:
    """What is asked of the target: a sampled answer is seeded by its prompt, to be repeatable."""
    seed = _hash(question.prompt_ids)
    return Request(
        request_id=request_id,
        prompt_ids=question.prompt_ids,
        limits=Limits(settings.max_tokens, stop_ids),
        sampling=SamplingParams(
            temperature=question.temperature, top_k=settings.top_k, seed=seed, noise_key=seed
        ),
    )


def generate(
    target: TargetModel,
    todo: Sequence[Question],
    stop_ids: frozenset[int],
    target_layer_ids: tuple[int, ...],
    folder: Path,
    settings: GenerateSettings,
) -> Iterator[tuple[int, int]]:
    """Answers all questions and adds shards of them to `folder`.

    Safe to stop and start again with what is then unanswered: an interrupted run loses the last
    shard at most.

    Yields (answers, tokens) made so far in this run, after every answer.
    """
    requests = [
        answer_request(str(number), question, stop_ids, settings)
        for number, question in enumerate(todo)
    ]
    writer = ShardWriter(folder, shard_index(target, target_layer_ids))
    max_model_len = settings.max_prompt_tokens + settings.max_tokens
    verifier = RecordingVerifier(
        RecordingTarget(target, target_layer_ids),
        VerifierSettings(settings.num_rows, max_model_len, settings.prefill_chunk),
    )
    num_answers = num_tokens = 0
    try:
        for verdict in decode(requests, verifier):
            num_tokens += len(verdict.token_ids)
            if verdict.finish_reason is None:
                continue
            text = verifier.take(verdict.request_id)
            num_answers += 1
            _write(writer, todo[int(verdict.request_id)], text, target)
            yield num_answers, num_tokens
    finally:
        writer.flush()


@torch.inference_mode()
def _write(
    writer: ShardWriter, question: Question, text: RecordedText, target: TargetModel
) -> None:
    """Adds one text. The top tokens are computed where drafts are learned: after the prompt."""
    num_prompt, num_tokens = len(question.prompt_ids), len(text.token_ids)
    response = text.token_ids[num_prompt:]
    if len(response) < 2:
        return  # nothing to predict after the first anchor
    top_ids, top_log_probs = top_tokens(target, text.hidden[num_prompt - 1 :])
    padding = (0, 0, num_prompt - 1, 1)
    writer.add(
        SequenceInfo(question.src, num_prompt, num_tokens, question.temperature, is_loop(response)),
        token_ids=torch.tensor(text.token_ids),
        taps=functional.pad(text.taps, (0, 0, 0, 1)),
        hidden=functional.pad(text.hidden, (0, 0, 0, 1)),
        top_ids=functional.pad(top_ids, padding),
        top_log_probs=functional.pad(top_log_probs, padding),
    )


def _hash(token_ids: tuple[int, ...]) -> int:
    """63 bits that depend on the prompt alone: its order, temperature and seed."""
    digest = hashlib.sha256(repr(token_ids).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
