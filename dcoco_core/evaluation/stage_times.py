"""How long single stages take for batches of several sizes, verify, draft and every corrector.

They take turns, so that the machine's other work falls on all of them alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from dcoco_core.drafts import plain_draft
from dcoco_core.evaluation.replay import Recorded, ReplayVerifier
from dcoco_core.evaluation.stack import Stack
from dcoco_core.target.interface import PackedRows
from dcoco_core.types import DraftRequest, RowHeader

_REPEATS = 15


@dataclass(frozen=True, slots=True)
class Spread:
    """Median milliseconds over repeats, with the quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """From at least two timings."""
        low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(median * 1000, low * 1000, high * 1000)

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Milliseconds of single stages for `num_rows` rows in one batch."""

    num_rows: int
    num_repeats: int
    verify_ms: Spread
    draft_ms: Spread
    correct_ms: dict[str, Spread]

    def correct_over_rest(self, corrector: str) -> float:
        """Correction time over draft + verify."""
        return self.correct_ms[corrector].median / (self.draft_ms.median + self.verify_ms.median)


def time_stages(
    stack: Stack, recorded: Sequence[Recorded], num_rows: int, repeats: int = _REPEATS
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
        repeats,
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


def _interleaved(work: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Spread]:
    """Milliseconds by name; one more round comes first, to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(repeats + 1):
        for name, one in work.items():
            start = time.perf_counter()
            one()
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    return {name: Spread.of(values) for name, values in seconds.items()}
