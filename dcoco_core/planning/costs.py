"""What a stage's work costs: a + b * rows + c * tokens, known beforehand or fitted as it runs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# How firmly a fit holds on to what it knew, as a share of what it has seen. It matters only in
# directions that the observations do not determine (one load and one plan for a long time).
_INERTIA = 0.01

# A stage has changed when so many batches in a row were so much slower (or faster) than the fit.
_CHANGE_BATCHES, _CHANGE_FACTOR = 5, 1.3
_CHANGE_KEPT = 0.1  # of the weight of what was seen before


@dataclass(frozen=True, slots=True)
class StageCost:
    """Seconds of one batch: `fixed_s` + `row_s` per row + `token_s` per token."""

    fixed_s: float = 0.0
    row_s: float = 0.0
    token_s: float = 0.0

    def seconds(self, num_rows: int, num_tokens: int) -> float:
        """Of a batch; nothing for an empty one."""
        if num_rows == 0:
            return 0.0
        return self.fixed_s + self.row_s * num_rows + self.token_s * num_tokens

    def scaled(self, factor: float) -> StageCost:
        """The cost of a stage `factor` times as slow."""
        return StageCost(self.fixed_s * factor, self.row_s * factor, self.token_s * factor)


FREE = StageCost()


class CostFit:
    """Fits a StageCost to observed batches: least squares of relative errors, nothing negative.

    Older observations fade with `half_life` newer ones. Directions that fade without anything new
    in them keep their last value. A single slow batch counts little, as its error is relative to
    its own time; a row of them counts as a stage that has become slower altogether.

    Args:
        prior: the cost before the first observation.
        half_life: observations after which one counts half.
    """

    def __init__(self, prior: StageCost | None = None, half_life: float = 64.0) -> None:
        if half_life <= 0:
            raise ValueError(f"half_life must be positive, got {half_life}")
        self.num_observations = 0
        self.cost = prior or FREE
        self._decay = 0.5 ** (1 / half_life)
        self._gram = np.zeros((3, 3))
        self._moment = np.zeros(3)
        self._surprises: list[float] = []  # observed / expected, the latest ones on one side

    def observe(self, num_rows: int, num_tokens: int, seconds: float) -> None:
        """Adds one batch. Raises ValueError for an empty batch or a time that is not positive."""
        if num_rows < 1 or num_tokens < 1 or not seconds > 0.0:
            raise ValueError(
                f"a batch has rows, tokens and a positive time, got {num_rows}, {num_tokens}, "
                f"{seconds}"
            )
        self._notice_change(seconds, self.cost.seconds(num_rows, num_tokens))
        features = np.array([1.0, num_rows, num_tokens]) / seconds  # relative: the target is 1
        self._gram = self._decay * self._gram + np.outer(features, features)
        self._moment = self._decay * self._moment + features
        self.num_observations += 1
        known = np.array([self.cost.fixed_s, self.cost.row_s, self.cost.token_s])
        hold = _INERTIA * self._gram.diagonal()
        solution = non_negative_least_squares(
            self._gram + np.diag(hold), self._moment + hold * known
        )
        self.cost = StageCost(*solution.tolist())

    def _notice_change(self, seconds: float, expected: float) -> None:
        """Scales what is known by the typical surprise, once there were enough of them."""
        ratio = seconds / expected if expected else 1.0
        if 1 / _CHANGE_FACTOR <= ratio <= _CHANGE_FACTOR:
            self._surprises.clear()
            return
        if self._surprises and (self._surprises[-1] > 1) != (ratio > 1):
            self._surprises.clear()
        self._surprises.append(ratio)
        if len(self._surprises) == _CHANGE_BATCHES:
            factor = median(self._surprises)
            self._surprises.clear()
            self.cost = self.cost.scaled(factor)
            self._gram *= _CHANGE_KEPT / factor**2  # as if every time had been `factor` as long
            self._moment *= _CHANGE_KEPT / factor


def non_negative_least_squares(gram: Array, moment: Array) -> Array:
    """The x >= 0 that minimises x' gram x - 2 moment' x, exactly, for a few unknowns.

    The minimum lies inside some face of the positive orthant, so it is the best of the faces' own
    minima that are not negative. The face of all unknowns is tried first: where its minimum is not
    negative it is the answer.

    Args:
        gram: [n, n], positive definite.
        moment: [n].
    """
    size = len(moment)
    scale = np.sqrt(gram.diagonal())
    best, best_value = np.zeros(size), 0.0
    for num_free in range(size, 0, -1):
        for free in combinations(range(size), num_free):
            index = np.array(free)
            part = gram[np.ix_(index, index)] / np.outer(scale[index], scale[index])
            found = np.linalg.solve(part, moment[index] / scale[index]) / scale[index]
            value = float(moment[index] @ found)  # the minimum itself is its negative
            if found.min() >= 0.0 and value > best_value:
                best, best_value = np.zeros(size), value
                best[index] = found
        if num_free == size and best_value > 0.0:
            return best
    return best
