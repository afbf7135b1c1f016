"""Rounds in virtual time: stages that take what they cost, rows that are accepted by chance.

The planner sees drawn acceptance; what counts in the end is the expected one, which spares many
rounds.

Groups queue for the stages in order of arrival, so what two groups gain comes out of the
simulation and not out of the planner's own formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from dcoco_core.planning.acceptance import expected_committed, survival_of
from dcoco_core.planning.planner import Planner, Stage
from dcoco_core.planning.rounds import Plan, RoundCosts, group_sizes

CORRECTOR = "dcoco"


@dataclass
class Totals:
    """Committed tokens, as expected, and the time they took."""

    num_tokens: float = 0.0
    seconds: float = 0.0
    plans: list[Plan] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds


@dataclass
class VirtualPipeline:
    """`noise` is the relative spread of the times; every row has `rates` of acceptance."""

    costs: RoundCosts
    rates: Sequence[float]
    num_rows: int
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.groups = [(0.0, self.num_rows)]  # ready for their next round at, rows
        self.free_at = dict.fromkeys(Stage, 0.0)

    def run_fixed(self, plan: Plan, num_rounds: int) -> Totals:
        """All rows under one plan."""
        return self._run(lambda: plan, num_rounds, None)

    def run(self, planner: Planner, num_rounds: int) -> Totals:
        """As the planner says; it sees every time and every verdict."""
        return self._run(lambda: planner.next_plan({CORRECTOR: self.num_rows}), num_rounds, planner)

    def _run(self, choose: Callable[[], Plan], num_rounds: int, planner: Planner | None) -> Totals:
        totals = Totals()
        began = min(ready for ready, _ in self.groups)
        for _ in range(num_rounds):
            self.groups.sort()
            plan = choose()
            totals.plans.append(plan)
            self._regroup(plan.num_groups)
            ready, rows = self.groups.pop(0)
            ends, committed = self._round(ready, rows, plan.num_draft_tokens, planner)
            totals.num_tokens += committed
            self.groups.append((ends, rows))
        totals.seconds = max(ready for ready, _ in self.groups) - began
        return totals

    def _regroup(self, num_groups: int) -> None:
        """A change of groups waits until all rows are back."""
        sizes = group_sizes(self.num_rows, num_groups)
        if len(sizes) != len(self.groups):
            ready = max(at for at, _ in self.groups)
            self.groups = [(ready, size) for size in sizes]

    def _round(
        self, ready: float, rows: int, length: int, planner: Planner | None
    ) -> tuple[float, float]:
        """Draft, correct, verify; when it ends and what it is expected to commit."""
        work = [(Stage.VERIFIER, self.costs.verifier, rows * (length + 1))]
        if length:
            work = [
                (Stage.DRAFTER, self.costs.drafter, rows * (length + 1)),
                (Stage.CORRECTOR, self.costs.corrector, rows * length),
                *work,
            ]
            ready += self.costs.hops_s
        for stage, cost, tokens in work:
            seconds = cost.seconds(rows, tokens) * self.random.lognormvariate(0.0, self.noise)
            device = stage
            if stage is Stage.CORRECTOR and not self.costs.is_corrector_apart:
                device = Stage.DRAFTER
            ready = max(ready, self.free_at[device]) + seconds
            self.free_at[device] = ready
            if planner is not None and seconds > 0.0:
                planner.observe_stage(stage, rows, tokens, seconds)
        if planner is not None and length:
            planner.observe_hops(self.costs.hops_s)
            for _ in range(rows):
                planner.observe_round(CORRECTOR, length, self._num_accepted(length))
        return ready, rows * expected_committed(survival_of(self.rates), length)

    def _num_accepted(self, length: int) -> int:
        num_accepted = 0
        while num_accepted < length and self.random.random() < self.rates[num_accepted]:
            num_accepted += 1
        return num_accepted
