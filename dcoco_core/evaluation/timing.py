"""How long the stages take: real decoding of one client, and single stages at several batch sizes.

Alternatives take turns within one run, in an order that rotates, and figures are medians: the
machine's other work then falls on all of them alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from dcoco_core.decode import decode
from dcoco_core.drafts import plain_draft
from dcoco_core.evaluation.replay import Recorded, ReplayVerifier
from dcoco_core.evaluation.stack import Stack
from dcoco_core.evaluation.timed import TimedStages
from dcoco_core.target.interface import PackedRows
from dcoco_core.types import DraftRequest, Limits, Request, RowHeader, Speculation

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class DecodingTimes:
    """Decoding of one client with one corrector (or PLAIN), over the same prompts for all.

    Attributes:
        tokens_per_s: median over prompts.
        over_plain: median over prompts of the speed against plain decoding.
        stage_ms: mean time of a stage in a round; empty for PLAIN.
        correct_over_round: the corrector's share of verify + draft + correct; None for PLAIN.
    """

    tokens_per_s: float
    over_plain: float
    stage_ms: dict[str, float]
    correct_over_round: float | None


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Median milliseconds of single stages for `num_rows` rows in one batch."""

    num_rows: int
    verify_ms: float
    draft_ms: float
    correct_ms: dict[str, float]

    def correct_over_rest(self, corrector: str) -> float:
        """Correction time over draft + verify."""
        return self.correct_ms[corrector] / (self.draft_ms + self.verify_ms)


def time_decoding(
    stack: Stack, prompts: Sequence[tuple[int, ...]], num_tokens: int, num_draft_tokens: int
) -> dict[str, DecodingTimes]:
    """Decodes every prompt plainly and with every corrector, greedily, one client at a time.

    End tokens are ignored, so that all arms generate the same number of tokens.
    """
    plain = stack.verifier(1, drafting=False)
    drafter = stack.drafter(num_draft_tokens, 1)
    verifier = stack.verifier(1)
    stages = {name: TimedStages(verifier, drafter, c) for name, c in stack.correctors.items()}

    def run(name: str, prompt_ids: tuple[int, ...], length: int) -> None:
        speculation = Speculation(0 if name == PLAIN else num_draft_tokens, name)
        request = Request(name, prompt_ids, Limits(length), speculation=speculation)
        verdicts = decode([request], plain) if name == PLAIN else stages[name].decode([request])
        for _ in verdicts:
            pass

    arms = [PLAIN, *stages]
    for name in arms:
        run(name, prompts[0][:16], 8)  # warm-up
    for timed in stages.values():
        timed.reset()
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn, prompt_ids in enumerate(prompts):
        shift = turn % len(arms)
        for name in arms[shift:] + arms[:shift]:
            seconds[name].append(_timed(partial(run, name, prompt_ids, num_tokens)))
    return {
        name: DecodingTimes(
            tokens_per_s=num_tokens / statistics.median(seconds[name]),
            over_plain=statistics.median(
                slow / fast for slow, fast in zip(seconds[PLAIN], seconds[name], strict=True)
            ),
            stage_ms={} if name == PLAIN else stages[name].milliseconds_per_round,
            correct_over_round=None if name == PLAIN else stages[name].share("correct"),
        )
        for name in arms
    }


def time_stages(
    stack: Stack, recorded: Sequence[Recorded], num_rows: int, repeats: int = 7
) -> StageTimes:
    """Times verify, draft and every corrector on one batch of the first rounds of answers.

    The answers with the shortest sequences are taken, again and again if there are too few.
    """
    usable = sorted(
        (r for r in recorded if len(r.response_ids) > 1), key=lambda r: len(r.request.prompt_ids)
    )
    chosen = [
        Recorded(replace(one.request, request_id=str(row)), one.response_ids[:2])
        for row, one in enumerate((usable * num_rows)[:num_rows])
    ]
    num_draft_tokens = chosen[0].request.speculation.num_draft_tokens
    texts = {one.request.request_id: one.response_ids for one in chosen}
    opened = ReplayVerifier(stack.target, stack.projection, texts, num_rows)
    for one in chosen:
        opened.open(one.request)
    request = opened.step(plain_draft()).draft_request
    drafter = stack.drafter(num_draft_tokens, num_rows)
    lattice = drafter.draft(request)
    again = DraftRequest(tuple(map(_without_context, request.headers)), request.context[:0])
    verify = _verification(stack, request.headers, num_draft_tokens)

    work: dict[str, Callable[[], object]] = {
        "verify": verify,
        "draft": partial(drafter.draft, again),
        **{f"correct {name}": partial(c.correct, lattice) for name, c in stack.correctors.items()},
    }
    times = _interleaved(work, repeats)
    return StageTimes(
        num_rows,
        times["verify"],
        times["draft"],
        {name: times[f"correct {name}"] for name in stack.correctors},
    )


def _without_context(header: RowHeader) -> RowHeader:
    """The header of a second draft after the same anchor: the context is there already."""
    return replace(header, context_start=header.start, num_context_rows=0)


def _verification(
    stack: Stack, headers: Sequence[RowHeader], num_draft_tokens: int
) -> Callable[[], object]:
    """A target pass over a block per row behind contexts of the rows' lengths, with logits."""
    width = num_draft_tokens + 1
    starts = tuple(header.start for header in headers)
    cache = stack.target.new_cache(len(starts), max(starts) + width)
    slots = tuple(range(len(starts)))
    rows = PackedRows(slots, starts, (width,) * len(starts))
    token_ids = torch.tensor([header.anchor_id for header in headers]).repeat_interleave(width)
    layer_ids = stack.projection.target_layer_ids

    @torch.inference_mode()
    def verify() -> object:
        output = stack.target.forward(token_ids, rows, cache, layer_ids)
        return stack.target.logits(output.hidden).argmax(-1)

    return verify


def _interleaved(work: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median milliseconds; one more round comes first, to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(repeats + 1):
        for name, one in work.items():
            elapsed = _timed(one)
            if repeat:
                seconds[name].append(elapsed)
    return {name: statistics.median(values) * 1000 for name, values in seconds.items()}


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
