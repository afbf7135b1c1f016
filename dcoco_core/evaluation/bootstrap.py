"""Figures with intervals, from rows of numbers that are drawn with replacement within sets.

Every figure is a function of the means of a few columns over the rows of each set, so one
bootstrap serves all (Efron, Tibshirani 1993, "An introduction to the bootstrap", chapters 8 and 13:
stratified, percentile interval). Columns of a row are drawn together, so a ratio or difference of
two of them is paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_RESAMPLES = 2000
_LEVEL = 0.95
_SEED = 0

Columns = dict[str, NDArray[np.float64]]
"""Means of columns by name, [resamples, sets]; the first resample is the sample itself.

NUM_ROWS is [1, sets], the number of rows in each set.
"""
NUM_ROWS = "rows of a set"

Figure = Callable[[Columns], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, its 95% bootstrap interval, and the number of rows it is from."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Sample:
    """Rows of numbers in one or more sets.

    Args:
        sets: of each set the rows, at least one, with as many numbers as there are names.
        names: of the columns.
        num_resamples: of the bootstrap.
    """

    def __init__(
        self,
        sets: Sequence[Sequence[Sequence[float]]],
        names: Sequence[str],
        num_resamples: int = NUM_RESAMPLES,
    ) -> None:
        generator = np.random.default_rng(_SEED)
        means = []
        for rows in sets:
            n = len(rows)
            weights = generator.multinomial(n, np.full(n, 1 / n), size=num_resamples) / n
            table = np.asarray(rows, dtype=np.float64)
            means.append(np.concatenate([table.mean(0, keepdims=True), weights @ table]))
        by_set = np.stack(means, axis=1)  # [resamples + 1, sets, columns]
        self._columns: Columns = {name: by_set[..., place] for place, name in enumerate(names)}
        self._columns[NUM_ROWS] = np.array([[float(len(rows)) for rows in sets]])
        self.n = sum(len(rows) for rows in sets)

    def estimate(self, figure: Figure) -> Estimate:
        """The figure on the sample, and its interval."""
        values = figure(self._columns)
        tail = (1 - _LEVEL) / 2
        low, high = np.quantile(values[1:], [tail, 1 - tail])
        return Estimate(float(values[0]), float(low), float(high), self.n)
