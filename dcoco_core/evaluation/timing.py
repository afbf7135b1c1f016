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

import numpy as np
import torch
from numpy.typing import NDArray

from dcoco_core.decode import decode
from dcoco_core.drafts import plain_draft
from dcoco_core.evaluation.bootstrap import Columns, Estimate, Figure, Sample
from dcoco_core.evaluation.replay import Recorded, ReplayVerifier
from dcoco_core.evaluation.stack import Stack
from dcoco_core.evaluation.timed import TimedStages
from dcoco_core.target.interface import PackedRows
from dcoco_core.types import DraftRequest, Limits, Request, RowHeader, Speculation

PLAIN = "plain"
STAGES = ("verify", "draft", "correct")


@dataclass(frozen=True, slots=True)
class DecodingTimes:
    """Decoding of one client with one corrector (or PLAIN), over the same prompts for all.

    Attributes:
        tokens_per_s: tokens over seconds, prefill included.
        over_plain: the speed against plain decoding, paired by prompt.
        stage_ms: time of verify, draft and correct in a round; empty for PLAIN.
        correct_over_round: the corrector's share of the three; None for PLAIN.
        tokens_per_s_by_set: the same for the prompts of each set.
    """

    tokens_per_s: Estimate
    over_plain: Estimate
    stage_ms: dict[str, Estimate]
    correct_over_round: Estimate | None
    tokens_per_s_by_set: dict[str, float]


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
    stack: Stack,
    prompts: Sequence[tuple[str, tuple[int, ...]]],
    num_tokens: int,
    num_draft_tokens: int,
) -> dict[str, DecodingTimes]:
    """Decodes every prompt plainly and with every corrector, greedily, one client at a time.

    End tokens are ignored, so that all arms generate the same number of tokens.

    Args:
        stack: whose correctors take turns.
        prompts: (set, prompt) pairs.
        num_tokens: generated after each prompt.
        num_draft_tokens: proposals of a round.
    """
    plain = stack.verifier(1, drafting=False)
    drafter = stack.drafter(num_draft_tokens, 1)
    verifier = stack.verifier(1)
    stages = {name: TimedStages(verifier, drafter, c) for name, c in stack.correctors.items()}

    def run(name: str, prompt_ids: tuple[int, ...], length: int) -> list[float]:
        """Seconds in all, in every stage, and the number of rounds."""
        speculation = Speculation(0 if name == PLAIN else num_draft_tokens, name)
        request = Request(name, prompt_ids, Limits(length), speculation=speculation)
        if name == PLAIN:
            return [_timed(lambda: list(decode([request], plain)))]
        timed = stages[name]
        timed.reset()
        elapsed = _timed(lambda: list(timed.decode([request])))
        return [elapsed, *(timed.seconds[stage] for stage in STAGES), float(timed.num_rounds)]

    arms = [PLAIN, *stages]
    for name in arms:
        run(name, prompts[0][1][:16], 8)  # warm-up
    rows: list[list[float]] = []
    for turn, (_, prompt_ids) in enumerate(prompts):
        shift = turn % len(arms)
        order = arms[shift:] + arms[:shift]
        measured = {name: run(name, prompt_ids, num_tokens) for name in order}
        rows.append([value for name in arms for value in measured[name]])
    names = ["seconds plain"]
    names += [f"{kind} {name}" for name in stages for kind in ("seconds", *STAGES, "rounds")]
    sets = [name for name, _ in prompts]
    return {name: _decoding_times(name, rows, names, sets, num_tokens) for name in arms}


def _decoding_times(
    arm: str, rows: list[list[float]], names: list[str], sets: list[str], num_tokens: int
) -> DecodingTimes:
    sample = Sample([rows], names)

    def correct_share(columns: Columns) -> NDArray[np.float64]:
        total = sum(columns[f"{stage} {arm}"] for stage in STAGES)
        return (columns[f"correct {arm}"] / total)[:, 0]

    def per_round(stage: str) -> Figure:
        return lambda columns: (1000 * columns[f"{stage} {arm}"] / columns[f"rounds {arm}"])[:, 0]

    seconds = names.index(f"seconds {arm}")
    by_set = {
        name: [row[seconds] for row, of in zip(rows, sets, strict=True) if of == name]
        for name in dict.fromkeys(sets)
    }
    return DecodingTimes(
        tokens_per_s=sample.estimate(lambda c: num_tokens / c[f"seconds {arm}"][:, 0]),
        over_plain=sample.estimate(lambda c: (c["seconds plain"] / c[f"seconds {arm}"])[:, 0]),
        stage_ms={}
        if arm == PLAIN
        else {stage: sample.estimate(per_round(stage)) for stage in STAGES},
        correct_over_round=None if arm == PLAIN else sample.estimate(correct_share),
        tokens_per_s_by_set={
            name: num_tokens * len(values) / sum(values) for name, values in by_set.items()
        },
    )


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
