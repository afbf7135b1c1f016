"""Acceptance over requests and sets: means, pooled figures, ratios paired by prompt.

The correctors of a request are columns of one row, so comparisons of them are paired by prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dcoco_core.evaluation.bootstrap import NUM_RESAMPLES, NUM_ROWS, Columns, Figure, Sample
from dcoco_core.evaluation.results import RequestResult

_KINDS = ("length", "tokens", "rounds")


def sample_of(
    results: Sequence[RequestResult],
    correctors: Sequence[str],
    num_resamples: int = NUM_RESAMPLES,
) -> Sample:
    """The requests as rows, by set; those whose answers ended before a draft are left out.

    Args:
        results: at least one that had a draft.
        correctors: whose columns are wanted; every result has them.
        num_resamples: of the bootstrap.
    """
    by_set: dict[str, list[list[float]]] = {}
    for result in results:
        if result.has_rounds:
            by_set.setdefault(result.set_name, []).append(_row(result, correctors))
    if not by_set:
        raise ValueError("no request had a draft: there is nothing to measure")
    names = [f"{kind} {name}" for name in correctors for kind in _KINDS]
    return Sample(list(by_set.values()), names, num_resamples)


def _row(result: RequestResult, correctors: Sequence[str]) -> list[float]:
    row = []
    for name in correctors:
        record = result.records[name]
        length = record.mean_acceptance_length
        assert length is not None  # there are rounds
        row += [length, float(record.num_committed), float(record.num_rounds)]
    return row


def mean_length(corrector: str) -> Figure:
    """Acceptance length: the mean over requests, then over sets, so that every set counts alike."""
    return lambda columns: columns[f"length {corrector}"].mean(1)


def pooled_length(corrector: str) -> Figure:
    """Acceptance length of all rounds together: long answers count for more."""
    return lambda columns: (
        (columns[f"tokens {corrector}"] * columns[NUM_ROWS]).sum(1)
        / (columns[f"rounds {corrector}"] * columns[NUM_ROWS]).sum(1)
    )


def ratio(corrector: str, other: str) -> Figure:
    """How many times as long `corrector`'s mean acceptance length is."""
    return lambda columns: mean_length(corrector)(columns) / mean_length(other)(columns)


def difference(corrector: str, other: str) -> Figure:
    """How much longer `corrector`'s mean acceptance length is."""
    return lambda columns: mean_length(corrector)(columns) - mean_length(other)(columns)


def captured_gap(corrector: str, base: str, best: str) -> Figure:
    """The share of the way from `base` to `best` that `corrector` goes; 0 without a gap."""

    def share(columns: Columns) -> NDArray[np.float64]:
        gap = difference(best, base)(columns)
        gained = difference(corrector, base)(columns)
        return np.divide(gained, gap, out=np.zeros_like(gap), where=gap > 0)

    return share
