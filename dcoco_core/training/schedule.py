"""When a training run ends, and its learning rate until then."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dcoco_core.errors import ConfigError
from dcoco_core.training.state import Progress


@dataclass(frozen=True, slots=True)
class Schedule:
    """The run ends after `minutes` of training or `steps`, whichever is set.

    The learning rate is a function of the part of that budget that is spent: linear warm-up over
    `warmup` of it, then a cosine down to `final_learning_rate` of the peak.
    """

    minutes: float | None = None
    steps: int | None = None
    learning_rate: float = 2e-3
    final_learning_rate: float = 0.0
    warmup: float = 0.04

    def __post_init__(self) -> None:
        if (self.minutes is None) == (self.steps is None):
            raise ConfigError("set one of minutes and steps")

    def spent(self, progress: Progress) -> float:
        """The spent part of the budget; 1 ends the run."""
        if self.steps is not None:
            return progress.step / self.steps
        assert self.minutes is not None
        return progress.elapsed_s / (60 * self.minutes)

    def learning_rate_at(self, spent: float) -> float:
        """The learning rate once `spent` of the budget is gone."""
        if spent < self.warmup:
            return self.learning_rate * max(spent, 1e-3) / self.warmup
        place = min(1.0, (spent - self.warmup) / (1 - self.warmup))
        low = self.final_learning_rate
        return self.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * place)))
