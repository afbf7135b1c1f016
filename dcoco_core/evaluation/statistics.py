"""Means over requests and sets, pooled figures, ratios paired by prompt, and their intervals.

Every figure is a function of the means of a few columns over the requests of each set, so one
bootstrap serves all: requests are drawn with replacement within each set (Efron, Tibshirani 1993,
"An introduction to the bootstrap", chapters 8 and 13: stratified, percentile interval), and the
figure is computed anew. All correctors of a request are drawn together, so a ratio or difference is
paired by prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcoco_core.evaluation.results import RequestResult

NUM_RESAMPLES = 2000
_LEVEL = 0.95
_SEED = 0

Columns = dict[str, NDArray[np.float64]]
"""Means of columns by name, [resamples, sets]; the first resample is the sample itself."""

Figure = Callable[[Columns], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, its 95% bootstrap interval, and the number of requests it is from."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Sample:
    """The requests of one setting, by set, as columns.

    Args:
        results: at least one; requests whose answers ended before a draft are left out.
        correctors: whose columns are wanted; every result has them.
        num_resamples: of the bootstrap.
    """

    def __init__(
        self,
        results: Sequence[RequestResult],
        correctors: Sequence[str],
        num_resamples: int = NUM_RESAMPLES,
    ) -> None:
        usable = [result for result in results if result.has_rounds]
        if not usable:
            raise ValueError("no request had a draft: there is nothing to measure")
        self.n = len(usable)
        self.set_names = list(dict.fromkeys(result.set_name for result in usable))
        self._columns = _means(
            [
                np.array([_row(r, correctors) for r in usable if r.set_name == name])
                for name in self.set_names
            ],
            [f"{kind} {name}" for name in correctors for kind in _KINDS],
            num_resamples,
        )

    def estimate(self, figure: Figure) -> Estimate:
        """The figure on the sample, and its interval."""
        values = figure(self._columns)
        tail = (1 - _LEVEL) / 2
        low, high = np.quantile(values[1:], [tail, 1 - tail])
        return Estimate(float(values[0]), float(low), float(high), self.n)


_KINDS = ("length", "tokens", "rounds")


def _row(result: RequestResult, correctors: Sequence[str]) -> list[float]:
    row = []
    for name in correctors:
        record = result.records[name]
        length = record.mean_acceptance_length
        assert length is not None  # Sample takes requests with rounds only
        row += [length, float(record.num_committed), float(record.num_rounds)]
    return row


def _means(
    sets: Sequence[NDArray[np.float64]], names: Sequence[str], num_resamples: int
) -> Columns:
    generator = np.random.default_rng(_SEED)
    means = []
    for rows in sets:
        n = len(rows)
        weights = generator.multinomial(n, np.full(n, 1 / n), size=num_resamples) / n
        means.append(np.concatenate([rows.mean(0, keepdims=True), weights @ rows]))
    table = np.stack(means, axis=1)  # [resamples + 1, sets, columns]
    return {name: table[..., column] for column, name in enumerate(names)}


def mean_length(corrector: str) -> Figure:
    """Acceptance length: the mean over requests, then over sets, so that every set counts alike."""
    return lambda columns: columns[f"length {corrector}"].mean(1)


def pooled_length(corrector: str) -> Figure:
    """Acceptance length of all rounds together: long answers count for more."""
    return lambda columns: (
        columns[f"tokens {corrector}"].sum(1) / columns[f"rounds {corrector}"].sum(1)
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
