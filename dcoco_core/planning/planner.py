"""The planner: from what the stages took and what was accepted, how the next round is drafted.

Pure: times are passed in, and equal observations in equal order give equal plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from dcoco_core.planning.acceptance import AcceptanceEstimate
from dcoco_core.planning.costs import FREE, CostFit
from dcoco_core.planning.lengths import row_lengths
from dcoco_core.planning.rounds import (
    Plan,
    RoundCosts,
    best_of,
    plans,
    round_seconds,
    tokens_per_second,
)


class Stage(StrEnum):
    """Whose time was taken."""

    VERIFIER = "verifier"
    DRAFTER = "drafter"
    CORRECTOR = "corrector"


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """What the planner may choose, and how readily it changes its mind.

    Attributes:
        lengths: values of num_draft_tokens to choose from; 0 is always among them.
        max_groups: 2 allows two overlapping groups.
        margin: a plan must promise this much more than the present one to replace it.
        patience: in so many rounds in a row.
        probe_share: share of the tokens that may be spent on looking at other plans.
        probe_interval: rounds between two looks, at least.
        is_corrector_apart: see RoundCosts.
        half_life: batches after which an observed time counts half.
    """

    lengths: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 7, 9, 11, 13, 15)
    max_groups: int = 2
    margin: float = 0.015
    patience: int = 4
    probe_share: float = 0.005
    probe_interval: int = 24
    is_corrector_apart: bool = True
    half_life: float = 64.0

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 0:
            raise ValueError(f"lengths must be 0 or more, got {self.lengths}")
        if self.max_groups not in (1, 2):
            raise ValueError(f"max_groups must be 1 or 2, got {self.max_groups}")


@dataclass(frozen=True, slots=True)
class PlannerState:
    """What the planner believes and has done, for metrics.

    Attributes:
        plan: the standing plan, probes aside.
        num_rows: rows it was last asked about.
        tokens_per_s: what the standing plan promises for them.
        plain_tokens_per_s: what plain decoding promises.
        num_rounds: plans asked for.
        num_switches: changes of the standing plan.
        num_probes: rounds that looked at another plan.
        costs: the fitted costs.
        survival: by corrector.
    """

    plan: Plan
    num_rows: int
    tokens_per_s: float
    plain_tokens_per_s: float
    num_rounds: int
    num_switches: int
    num_probes: int
    costs: RoundCosts
    survival: Mapping[str, tuple[float, ...]]


class Planner:
    """One per verifier.

    Args:
        settings: bounds.
        priors: costs to start from; without them the first rounds try plans out.
        seed: decides between probes that are equally old.
    """

    def __init__(
        self, settings: PlannerSettings, priors: RoundCosts | None = None, seed: int = 0
    ) -> None:
        self._settings = settings
        self._lengths = tuple(sorted({0, *settings.lengths}))
        prior_costs = [FREE] * 3
        if priors is not None:
            prior_costs = [priors.verifier, priors.drafter, priors.corrector]
        self._fits = {
            stage: CostFit(cost, settings.half_life)
            for stage, cost in zip(Stage, prior_costs, strict=True)
        }
        self._hops_s = 0.0 if priors is None else priors.hops_s
        self._acceptance: dict[str, AcceptanceEstimate] = {}
        self._random = Random(seed)
        self._plan = Plan()
        self._rows: dict[str, int] = {}
        self._warm_up = [] if priors is not None else self._first_plans()
        self._num_rows = self._num_rounds = self._num_switches = self._num_probes = 0
        self._num_better = 0  # rounds in a row in which another plan promised more
        self._probe_budget_s = 0.0
        self._last_tried: dict[int, int] = {}  # round by num_draft_tokens
        self._last_probe = 0

    # ------------------------------------------------------------------------ observations

    def observe_stage(self, stage: Stage, num_rows: int, num_tokens: int, seconds: float) -> None:
        """A batch kept `stage` busy for so long. Tokens are counted as in RoundCosts."""
        self._fits[stage].observe(num_rows, num_tokens, seconds)

    def observe_hops(self, seconds: float) -> None:
        """The rows of a round were on their way for so long while no stage worked on them."""
        self._hops_s += 0.1 * (seconds - self._hops_s)

    def observe_round(self, corrector: str, num_drafted: int, num_accepted: int) -> None:
        """One verdict on a draft; not one that a stop or the length cap cut short."""
        self._estimate(corrector).observe(num_drafted, num_accepted)

    # --------------------------------------------------------------------------- decisions

    def next_plan(self, rows: Mapping[str, int]) -> Plan:
        """The plan of the next round of `rows`, counted by corrector; at least one."""
        num_rows = sum(rows.values())
        if num_rows < 1:
            raise ValueError("there is nothing to plan without rows")
        self._rows, self._num_rows = dict(rows), num_rows
        self._num_rounds += 1
        if self._warm_up:
            return self._tried(self._warm_up.pop(0))
        costs, survival = self._costs(), self._survival(rows)
        if num_rows == 1 and self._plan.num_groups > 1:
            self._plan = Plan(self._plan.num_draft_tokens)  # the other group has run empty
        candidates = plans(self._lengths, self._settings.max_groups, num_rows)
        best, rate = best_of(costs, survival, candidates, num_rows)
        present_rate = tokens_per_second(costs, survival, self._plan, num_rows)
        is_better = rate > present_rate * (1 + self._settings.margin)
        self._num_better = self._num_better + 1 if is_better else 0
        if self._num_better >= self._settings.patience:
            self._plan, self._num_better, present_rate = best, 0, rate
            self._num_switches += 1
        seconds = round_seconds(costs, self._plan, num_rows)
        self._probe_budget_s += self._settings.probe_share * seconds
        probe = self._probe(costs, survival, present_rate)
        return self._tried(self._plan if probe is None else probe)

    def row_lengths(self, survivals: Sequence[Sequence[float]], budget: int) -> tuple[int, ...]:
        """Proposals to verify of rows that draft the longest `survivals`, by their own chances.

        See lengths.row_lengths for what may be in them.
        """
        costs, num_rows = self._costs(), len(survivals)
        longest = max((len(survival) for survival in survivals), default=0)
        before_s = costs.hops_s + costs.drafter.seconds(num_rows, num_rows * (longest + 1))
        before_s += costs.corrector.seconds(num_rows, num_rows * longest)

        def seconds(num_proposals: int) -> float:
            return before_s + costs.verifier.seconds(num_rows, num_rows + num_proposals)

        return row_lengths(survivals, seconds, budget)

    @property
    def state(self) -> PlannerState:
        """A snapshot. Rates are 0 before the first plan."""
        costs = self._costs()
        survival = {name: estimate.survival for name, estimate in self._acceptance.items()}
        rates = (0.0, 0.0)
        if self._rows and costs.verifier != FREE:
            mean = self._survival(self._rows)
            rates = (
                tokens_per_second(costs, mean, self._plan, self._num_rows),
                tokens_per_second(costs, mean, Plan(), self._num_rows),
            )
        return PlannerState(
            self._plan,
            self._num_rows,
            *rates,
            self._num_rounds,
            self._num_switches,
            self._num_probes,
            costs,
            survival,
        )

    # ---------------------------------------------------------------------------- internals

    def _first_plans(self) -> list[Plan]:
        """Plain, longest and middle drafts, twice: enough to tell the costs apart."""
        middle = self._lengths[len(self._lengths) // 2]
        return [Plan(self._lengths[-1]), Plan(), Plan(middle)] * 2

    def _tried(self, plan: Plan) -> Plan:
        self._last_tried[plan.num_draft_tokens] = self._num_rounds
        return plan

    def _estimate(self, corrector: str) -> AcceptanceEstimate:
        if corrector not in self._acceptance:
            self._acceptance[corrector] = AcceptanceEstimate(self._lengths[-1])
        return self._acceptance[corrector]

    def _survival(self, rows: Mapping[str, int]) -> tuple[float, ...]:
        shares = [(self._estimate(name).survival, count) for name, count in rows.items() if count]
        return _mean(shares, self._lengths[-1])

    def _costs(self) -> RoundCosts:
        verifier, drafter, corrector = (self._fits[stage].cost for stage in Stage)
        apart = self._settings.is_corrector_apart
        return RoundCosts(verifier, drafter, corrector, self._hops_s, apart)

    def _probe(
        self, costs: RoundCosts, survival: Sequence[float], present_rate: float
    ) -> Plan | None:
        """Another length to look at now, if one is due and affordable: the one longest unseen.

        Those next to the standing one, plain decoding, and the best draft where that stands.

        What it promises to lose is paid from a budget that grows with time, so that looking
        around costs at most a fixed share whatever the plans are like. The budget never holds
        more than one look, or a quiet hour would pay for a minute of bad rounds.
        """
        if self._num_rounds - self._last_probe < self._settings.probe_interval:
            return None
        num_rows, standing = self._num_rows, self._plan.num_draft_tokens
        place = self._lengths.index(standing)
        lengths = {0, *self._lengths[max(place - 1, 0) : place + 2]} - {standing}
        if standing == 0 and len(self._lengths) > 1:
            drafts = [Plan(length) for length in self._lengths[1:]]
            lengths.add(best_of(costs, survival, drafts, num_rows)[0].num_draft_tokens)
        offers = []
        for length in sorted(lengths):
            plan = Plan(length, self._plan.num_groups if length else 1)
            share = 1 - tokens_per_second(costs, survival, plan, num_rows) / present_rate
            loss_s = max(share, 0.0) * round_seconds(costs, plan, num_rows)
            age = self._last_tried.get(length, 0)
            offers.append((age, self._random.random(), loss_s, plan))
        dearest = max((loss_s for _, _, loss_s, _ in offers), default=0.0)
        self._probe_budget_s = min(self._probe_budget_s, dearest)
        affordable = [offer for offer in offers if offer[2] <= self._probe_budget_s]
        if not affordable:
            return None
        *_, loss_s, probe = min(affordable)
        self._probe_budget_s -= loss_s
        self._last_probe = self._num_rounds
        self._num_probes += 1
        return probe


def _mean(shares: Sequence[tuple[Sequence[float], int]], num_positions: int) -> tuple[float, ...]:
    """Survival averaged over rows; zeros where there are none."""
    total = sum(count for _, count in shares)
    if not total:
        return (0.0,) * num_positions
    return tuple(
        sum(survival[place] * count for survival, count in shares) / total
        for place in range(num_positions)
    )
