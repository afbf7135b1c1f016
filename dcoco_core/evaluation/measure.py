"""Asks sets of prompts in one setting, and counts what every corrector had accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dcoco_core.decode import decode
from dcoco_core.errors import ConfigError
from dcoco_core.evaluation.plain import answer_plainly, noise_key_of
from dcoco_core.evaluation.replay import NUM_ORACLE_CANDIDATES, Recorded, replay
from dcoco_core.evaluation.results import RequestResult
from dcoco_core.evaluation.sets import EvalSet
from dcoco_core.evaluation.settings import Setting
from dcoco_core.evaluation.stack import Stack
from dcoco_core.metrics import SpeculationRecord
from dcoco_core.training.generate import Question
from dcoco_core.types import Limits, Request, SamplingParams, Speculation


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is asked.

    Attributes:
        prompts: of each set, at most; None for the set's own size.
        max_tokens: an answer's cap where the target does not reason.
        reasoning_tokens: the same where it does.
        max_prompt_tokens: longer prompts are left out.
        num_draft_tokens: proposals of a block, all of which a round verifies.
        num_rows: answers that are decoded together.
    """

    prompts: int | None = None
    max_tokens: int = 256
    reasoning_tokens: int = 512
    max_prompt_tokens: int = 768
    num_draft_tokens: int = 7
    num_rows: int = 32

    def cap(self, setting: Setting) -> int:
        """The longest answer in a setting."""
        return self.reasoning_tokens if setting.is_reasoning else self.max_tokens


def questions_of(stack: Stack, one: EvalSet, setting: Setting, sizes: Sizes) -> list[Question]:
    """The first prompts of a set that are short enough, as chats.

    Raises:
        ConfigError: the set's package is missing, or the model has no room for such sequences.
    """
    longest = sizes.max_prompt_tokens + sizes.cap(setting)
    if longest > stack.max_positions:
        raise ConfigError(
            f"max_prompt_tokens {sizes.max_prompt_tokens} and answers of {sizes.cap(setting)} "
            f"tokens need {longest} positions, there are {stack.max_positions}"
        )
    found = []
    for prompt in one.prompts():
        ids = setting.encode(stack.tokenizer, prompt.messages)
        if len(ids) <= sizes.max_prompt_tokens:
            found.append(Question(one.name, ids, setting.temperature))
    return found[: one.size if sizes.prompts is None else min(one.size, sizes.prompts)]


def recorded_answers(
    stack: Stack,
    questions: Sequence[Question],
    setting: Setting,
    sizes: Sizes,
    path: Path,
    on_answer: Callable[[], None] = lambda: None,
) -> list[Recorded]:
    """Plain answers to `questions`, out of a file; those it lacks are made and added to it.

    `on_answer` is called after each that is made.
    """
    limits = Limits(sizes.cap(setting), stack.tokenizer.eos_token_ids)
    requests = []
    for number, question in enumerate(questions):
        key = noise_key_of(question.prompt_ids)
        sampling = SamplingParams(setting.temperature, seed=key, noise_key=key)
        speculation = Speculation(sizes.num_draft_tokens)
        requests.append(Request(str(number), question.prompt_ids, limits, sampling, speculation))
    texts = answer_plainly(stack, requests, path, sizes.num_rows, on_answer)
    return [Recorded(request, texts[request.prompt_ids]) for request in requests]


def measure_replayed(
    stack: Stack, questions: Sequence[Question], recorded: Sequence[Recorded], sizes: Sizes
) -> Iterator[RequestResult]:
    """Replays the recorded answers to `questions`: every corrector of the stack and the oracle."""
    drafter = stack.drafter(sizes.num_draft_tokens, sizes.num_rows, NUM_ORACLE_CANDIDATES)
    found = replay(
        recorded, stack.target, stack.projection, drafter, stack.correctors, sizes.num_rows
    )
    for number, answer in found:
        yield RequestResult.of_replayed(questions[number], answer)


def decode_speculatively(
    stack: Stack, questions: Sequence[Question], corrector: str, setting: Setting, sizes: Sizes
) -> Iterator[RequestResult]:
    """Really decodes `questions` with one corrector, by rejection where there is a temperature."""
    stop_ids = stack.tokenizer.eos_token_ids
    requests = [
        Request(
            request_id=str(number),
            prompt_ids=question.prompt_ids,
            limits=Limits(sizes.cap(setting), stop_ids),
            sampling=SamplingParams(temperature=setting.temperature, noise_key=number),
            speculation=Speculation(sizes.num_draft_tokens, corrector),
        )
        for number, question in enumerate(questions)
    ]
    for request_id, response_ids, record in decode_requests(stack, requests, corrector, sizes):
        question = questions[int(request_id)]
        yield RequestResult.of_decoded(question, response_ids, corrector, record)


def decode_requests(
    stack: Stack, requests: Sequence[Request], corrector: str, sizes: Sizes
) -> Iterator[tuple[str, tuple[int, ...], SpeculationRecord]]:
    """Drafts, corrects and verifies; yields (request id, answer, counters) as requests end."""
    verifier = stack.verifier(sizes.num_rows)
    drafter = stack.drafter(sizes.num_draft_tokens, sizes.num_rows)
    tokens: dict[str, list[int]] = {}
    records: dict[str, SpeculationRecord] = {}
    for verdict in decode(requests, verifier, drafter, stack.correctors[corrector]):
        tokens.setdefault(verdict.request_id, []).extend(verdict.token_ids)
        record = records.setdefault(verdict.request_id, SpeculationRecord())
        record.add(verdict)
        if verdict.finish_reason is not None:
            yield verdict.request_id, tuple(tokens.pop(verdict.request_id)), record
