"""From counted requests to the figures of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dcoco_core.evaluation.bootstrap import Estimate, Sample
from dcoco_core.evaluation.replay import ORACLE
from dcoco_core.evaluation.results import RequestResult
from dcoco_core.evaluation.statistics import (
    captured_gap,
    difference,
    mean_length,
    pooled_length,
    ratio,
    sample_of,
)
from dcoco_core.metrics import SpeculationRecord

BASE, DCOCO = "none", "dcoco"
SEQUENTIAL = ("domino", "dspark-vanilla", "dspark-gated", "dspark-rnn")
"""Correctors that take a step of a network per position."""
ALL_SETS = "all sets"
_MIN_REQUESTS = 5
"""Fewer are too few for an interval to count: one request has none, and resampling a handful
often gives the same few again."""


@dataclass(frozen=True, slots=True)
class CorrectorFigures:
    """One corrector on one set, or on all of them, every set counting alike.

    `ratio`, `difference` and `captured_gap` are against the uncorrected draft, None where there is
    nothing to compare with; the gap is that to an oracle over 16 candidates.
    """

    acceptance_length: Estimate
    pooled: Estimate
    per_position: list[float | None]
    ratio: Estimate | None
    difference: Estimate | None
    captured_gap: Estimate | None


@dataclass(frozen=True, slots=True)
class SetFigures:
    """One set in one setting.

    `loop_share` is the share of answers that repeat themselves; `without_loops` leaves them out,
    and is None where every answer loops. `dcoco_over` is the ratio of dcoco's acceptance length to
    that of every other corrector, paired by prompt. Recall is per place in the block.
    """

    n: int
    num_tokens: float
    loop_share: float
    correctors: dict[str, CorrectorFigures]
    dcoco_over: dict[str, Estimate]
    without_loops: dict[str, Estimate] | None
    recall_at_1: list[float]
    recall_at_16: list[float]
    by_verified: dict[str, list[float]]


def set_figures(results: Sequence[RequestResult]) -> SetFigures:
    """The figures of requests that all have the same correctors, of one set or several."""
    names = list(results[0].records)
    sample = sample_of(results, names)
    others = [result for result in results if not result.loops and result.has_rounds]
    quiet = sample_of(others, names) if others else None
    places = _totals(result.recall for result in results)
    return SetFigures(
        n=sample.n,
        num_tokens=sum(result.num_tokens for result in results) / len(results),
        loop_share=sum(result.loops for result in results) / len(results),
        correctors={name: _corrector(name, names, sample, results) for name in names},
        dcoco_over={
            name: sample.estimate(ratio(DCOCO, name))
            for name in names
            if DCOCO in names and name not in (DCOCO, ORACLE)
        },
        without_loops=None
        if quiet is None
        else {name: quiet.estimate(mean_length(name)) for name in names},
        recall_at_1=[first / max(asked, 1) for asked, first, _ in places],
        recall_at_16=[found / max(asked, 1) for asked, _, found in places],
        by_verified={name: _by_verified(results, name) for name in names if places},
    )


def setting_figures(results: Sequence[RequestResult]) -> dict[str, SetFigures]:
    """The figures of every set of a setting, then those of all together."""
    names = dict.fromkeys(result.set_name for result in results)
    figures = {
        name: set_figures([result for result in results if result.set_name == name])
        for name in names
        if any(result.has_rounds for result in results if result.set_name == name)
    }
    return figures | {ALL_SETS: set_figures(results)}


def best_sequential(figures: SetFigures) -> str | None:
    """The sequential corrector with the longest mean acceptance, if there is one."""
    there = [name for name in SEQUENTIAL if name in figures.correctors]
    return max(
        there, key=lambda name: figures.correctors[name].acceptance_length.value, default=None
    )


def sets_longer(figures: Mapping[str, SetFigures]) -> dict[str, int]:
    """By corrector, the sets where the interval of its ratio to `none` is above 1.

    Sets of fewer than five requests never count.
    """
    sets = [found for name, found in figures.items() if name != ALL_SETS]
    names = [name for name in figures[ALL_SETS].correctors if name not in (BASE, ORACLE)]
    return {name: sum(_is_longer(found.correctors[name]) for found in sets) for name in names}


def _is_longer(figures: CorrectorFigures) -> bool:
    found = figures.ratio
    return found is not None and found.n >= _MIN_REQUESTS and found.low > 1.0


def _corrector(
    name: str, names: Sequence[str], sample: Sample, results: Sequence[RequestResult]
) -> CorrectorFigures:
    record = SpeculationRecord()
    for result in results:
        record.merge(result.records[name])
    compares = BASE in names and name != BASE
    return CorrectorFigures(
        acceptance_length=sample.estimate(mean_length(name)),
        pooled=sample.estimate(pooled_length(name)),
        per_position=record.acceptance_rate_per_position,
        ratio=sample.estimate(ratio(name, BASE)) if compares else None,
        difference=sample.estimate(difference(name, BASE)) if compares else None,
        captured_gap=sample.estimate(captured_gap(name, BASE, ORACLE))
        if compares and ORACLE in names and name != ORACLE
        else None,
    )


def _totals(tables: Iterable[Sequence[Sequence[int]]]) -> list[list[int]]:
    """Sums tables of one shape; [] for none."""
    total: list[list[int]] = []
    for table in tables:
        rows = [list(row) for row in table]
        total = (
            [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(total, rows, strict=True)]
            if total
            else rows
        )
    return total


def _by_verified(results: Sequence[RequestResult], name: str) -> list[float]:
    """Mean over sets of the mean over requests, for 1, 2, ... proposals verified."""
    by_set: dict[str, list[Sequence[float | None]]] = {}
    for result in results:
        if result.has_rounds:
            by_set.setdefault(result.set_name, []).append(result.by_verified[name])
    means = [
        [sum(value or 0.0 for value in place) / len(lists) for place in zip(*lists, strict=True)]
        for lists in by_set.values()
    ]
    return [sum(place) / len(means) for place in zip(*means, strict=True)]
