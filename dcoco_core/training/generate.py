"""The target answers training prompts with the project's own batched engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dcoco_core.decode import decode
from dcoco_core.target.interface import TargetModel
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.target.verifier import TargetVerifier, VerifierSettings
from dcoco_core.training.answers import Answer, append_answers, is_loop, read_answers
from dcoco_core.types import Limits, Request, SamplingParams

_ANSWERS_PER_WRITE = 64


@dataclass(frozen=True, slots=True)
class GenerateSettings:
    """What one run of `generate` makes.

    Attributes:
        temperatures: each prompt is answered once, at the one its hash picks.
        top_k: candidates of a sampled token.
        max_tokens: an answer is cut there, or ends at the end token.
        num_rows: sequences decoded together.
        max_prompt_tokens: longer prompts are left out.
    """

    temperatures: tuple[float, ...] = (0.0, 0.7)
    top_k: int = 50
    max_tokens: int = 176
    num_rows: int = 64
    max_prompt_tokens: int = 300


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt to answer: its source, its tokens, and how to sample the answer."""

    src: str
    prompt_ids: tuple[int, ...]
    temperature: float


def questions(
    prompts: Sequence[tuple[str, str]], tokenizer: TargetTokenizer, settings: GenerateSettings
) -> list[Question]:
    """Tokenised chats of (source, prompt) pairs, in an order that mixes the sources."""
    found = []
    for src, prompt in prompts:
        ids = tuple(tokenizer.encode_chat([{"role": "user", "content": prompt}]))
        if len(ids) <= settings.max_prompt_tokens:
            pick = _hash(ids) % len(settings.temperatures)
            found.append(Question(src, ids, settings.temperatures[pick]))
    return sorted(found, key=lambda question: _hash(question.prompt_ids))


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
    path: Path,
    settings: GenerateSettings,
) -> Iterator[tuple[int, int]]:
    """Answers what `path` does not hold yet and appends to it; safe to stop and start again.

    Yields (answers, tokens) made so far in this run, after every written batch of answers.
    """
    done = {answer.prompt_ids for answer in read_answers(path)} if path.exists() else set()
    requests = [
        answer_request(str(index), question, stop_ids, settings)
        for index, question in enumerate(todo)
        if question.prompt_ids not in done
    ]
    max_model_len = settings.max_prompt_tokens + settings.max_tokens
    verifier = TargetVerifier(target, VerifierSettings(settings.num_rows, max_model_len, 512))
    texts: dict[str, list[int]] = {}
    ended: list[Answer] = []
    num_answers = num_tokens = 0
    for verdict in decode(requests, verifier):
        tokens = texts.setdefault(verdict.request_id, [])
        tokens.extend(verdict.token_ids)
        num_tokens += len(verdict.token_ids)
        if verdict.finish_reason is None:
            continue
        question = todo[int(verdict.request_id)]
        response = tuple(texts.pop(verdict.request_id))
        ended.append(
            Answer(
                src=question.src,
                prompt_ids=question.prompt_ids,
                response_ids=response,
                temperature=question.temperature,
                loops=is_loop(response),
            )
        )
        num_answers += 1
        if len(ended) == _ANSWERS_PER_WRITE:
            append_answers(path, ended)
            ended = []
            yield num_answers, num_tokens
    if ended:
        append_answers(path, ended)
    yield num_answers, num_tokens


def _hash(token_ids: tuple[int, ...]) -> int:
    """63 bits that depend on the prompt alone: its order, temperature and seed."""
    digest = hashlib.sha256(repr(token_ids).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
