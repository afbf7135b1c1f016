"""The planner in virtual time, against the best fixed plan and against plain decoding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from dcoco_core.planning.acceptance import survival_of
from dcoco_core.planning.costs import StageCost
from dcoco_core.planning.planner import Planner, PlannerSettings
from dcoco_core.planning.rounds import Plan, RoundCosts, best_of, plans, tokens_per_second
from tests.unit.planning.virtual_pipeline import CORRECTOR, VirtualPipeline

MS = 1e-3
# Memory-bound, as one large accelerator: fixed costs, tokens nearly free.
ACCELERATOR = RoundCosts(
    StageCost(4.6 * MS, 0.03 * MS, 0.011 * MS),
    StageCost(1.6 * MS, 0.0, 0.004 * MS),
    StageCost(0.2 * MS, 0.0, 0.0002 * MS),
    hops_s=0.4 * MS,
)
# Compute-bound, as a CPU: every token is paid for.
PROCESSOR = RoundCosts(
    StageCost(50 * MS, 3 * MS, 4 * MS), StageCost(20 * MS, 1 * MS, 1.5 * MS), StageCost(2 * MS)
)
# A drafter as dear as the target: two groups overlap the two.
BALANCED = replace(
    ACCELERATOR,
    verifier=StageCost(1 * MS, 0.1 * MS, 0.05 * MS),
    drafter=StageCost(1 * MS, 0.1 * MS, 0.05 * MS),
)
# Nothing to gain from any draft.
HOPELESS = replace(PROCESSOR, drafter=StageCost(400 * MS, 3 * MS, 4 * MS))


@dataclass(frozen=True, slots=True)
class BentCost(StageCost):
    """Bound by memory until the tokens take longer: not what the planner assumes."""

    def seconds(self, num_rows: int, num_tokens: int) -> float:
        return max(self.fixed_s, self.token_s * num_tokens) + self.row_s * num_rows


BENT = replace(
    ACCELERATOR,
    verifier=BentCost(4.6 * MS, 0.02 * MS, 0.03 * MS),
    drafter=BentCost(1.6 * MS, 0.02 * MS, 0.008 * MS),
)
PROFILES = {
    "accelerator": ACCELERATOR,
    "processor": PROCESSOR,
    "balanced": BALANCED,
    "balanced, corrector with the drafter": replace(BALANCED, is_corrector_apart=False),
    "hopeless": HOPELESS,
}
GOOD, POOR = (0.87,) * 15, (0.45,) * 15
SETTINGS = PlannerSettings()
LENGTHS = SETTINGS.lengths
SETTLED = 200  # rounds


def rates_of_best_and_plain(
    costs: RoundCosts, rates: tuple[float, ...], num_rows: int
) -> tuple[float, float]:
    survival = survival_of(rates)
    _, best = best_of(costs, survival, plans(LENGTHS, 2, num_rows), num_rows)
    return best, tokens_per_second(costs, survival, Plan(), num_rows)


@pytest.mark.parametrize("num_rows", [1, 4, 16, 64])
@pytest.mark.parametrize("rates", [GOOD, POOR], ids=["good", "poor"])
@pytest.mark.parametrize("profile", PROFILES)
def test_settled_planner_is_near_the_best_plan(
    profile: str, rates: tuple[float, ...], num_rows: int
) -> None:
    costs = PROFILES[profile]
    pipeline = VirtualPipeline(costs, rates, num_rows, noise=0.05)
    planner = Planner(SETTINGS)
    pipeline.run(planner, SETTLED)
    reached = pipeline.run(planner, 300).tokens_per_s
    best, plain = rates_of_best_and_plain(costs, rates, num_rows)
    assert reached >= 0.95 * best
    assert reached >= 0.97 * plain


@pytest.mark.parametrize("num_rows", [1, 16, 64])
@pytest.mark.parametrize("rates", [GOOD, POOR], ids=["good", "poor"])
def test_costs_with_a_bend_cost_little(rates: tuple[float, ...], num_rows: int) -> None:
    pipeline = VirtualPipeline(BENT, rates, num_rows, noise=0.05)
    planner = Planner(SETTINGS)
    pipeline.run(planner, SETTLED)
    reached = pipeline.run(planner, 300).tokens_per_s
    best, plain = rates_of_best_and_plain(BENT, rates, num_rows)
    assert reached >= 0.9 * best
    assert reached >= 0.97 * plain


@pytest.mark.parametrize(
    ("costs", "num_rows", "plan"),
    [
        (ACCELERATOR, 1, Plan(7)),
        (ACCELERATOR, 16, Plan(7)),
        (ACCELERATOR, 64, Plan(5, 2)),
        (BALANCED, 2, Plan(9, 2)),
        (BALANCED, 7, Plan(3, 2)),
        (PROCESSOR, 9, Plan(0)),
        (replace(BALANCED, is_corrector_apart=False), 16, Plan(3, 2)),
    ],
)
def test_simulated_rates_are_what_the_formula_says(
    costs: RoundCosts, num_rows: int, plan: Plan
) -> None:
    simulated = VirtualPipeline(costs, GOOD, num_rows).run_fixed(plan, 200)
    expected = tokens_per_second(costs, survival_of(GOOD), plan, num_rows)
    assert simulated.tokens_per_s == pytest.approx(expected, rel=0.01)


def test_priors_spare_the_warm_up() -> None:
    pipeline = VirtualPipeline(ACCELERATOR, GOOD, 8)
    totals = pipeline.run(Planner(SETTINGS, priors=ACCELERATOR), 100)
    best, _ = rates_of_best_and_plain(ACCELERATOR, GOOD, 8)
    assert totals.tokens_per_s >= 0.9 * best


def test_adapts_to_a_drafter_that_becomes_slow_and_recovers() -> None:
    pipeline = VirtualPipeline(ACCELERATOR, GOOD, 8, noise=0.05)
    planner = Planner(SETTINGS)
    pipeline.run(planner, SETTLED)
    assert planner.state.plan.num_draft_tokens >= 7
    pipeline.costs = replace(ACCELERATOR, drafter=ACCELERATOR.drafter.scaled(40))
    pipeline.run(planner, SETTLED)
    best, plain = rates_of_best_and_plain(pipeline.costs, GOOD, 8)
    assert best == plain, "the case is to make plain decoding the best plan"
    assert pipeline.run(planner, 600).tokens_per_s >= 0.97 * plain
    pipeline.costs = ACCELERATOR
    pipeline.run(planner, 3000)  # plain rounds see the drafter through rare probes alone
    best, _ = rates_of_best_and_plain(ACCELERATOR, GOOD, 8)
    assert pipeline.run(planner, 300).tokens_per_s >= 0.95 * best


def test_adapts_to_the_load() -> None:
    pipeline = VirtualPipeline(PROCESSOR, GOOD, 1, noise=0.05)
    planner = Planner(SETTINGS)
    lengths = []
    for num_rows in (1, 32, 1):
        pipeline.groups = [(max(at for at, _ in pipeline.groups), num_rows)]
        pipeline.num_rows = num_rows
        pipeline.run(planner, SETTLED)
        reached = pipeline.run(planner, 300).tokens_per_s
        best, _ = rates_of_best_and_plain(PROCESSOR, GOOD, num_rows)
        assert reached >= 0.95 * best
        lengths.append(planner.state.plan.num_draft_tokens)
    assert lengths[0] > lengths[1]
    assert lengths[2] > lengths[1]


def test_noise_does_not_make_it_flap() -> None:
    pipeline = VirtualPipeline(BALANCED, GOOD, 8, noise=0.3)
    planner = Planner(SETTINGS)
    pipeline.run(planner, SETTLED)
    before = planner.state.num_switches
    pipeline.run(planner, 800)
    steady = planner.state.num_switches - before
    eager = Planner(replace(SETTINGS, margin=0.0, patience=1))
    other = VirtualPipeline(BALANCED, GOOD, 8, noise=0.3)
    other.run(eager, SETTLED)
    before = eager.state.num_switches
    other.run(eager, 800)
    assert steady <= 16
    assert steady < (eager.state.num_switches - before) / 4


def test_probes_are_rare_and_cost_little() -> None:
    pipeline = VirtualPipeline(HOPELESS, POOR, 4)
    planner = Planner(SETTINGS)
    pipeline.run(planner, SETTLED)
    before = planner.state.num_probes
    totals = pipeline.run(planner, 2000)
    num_probes = planner.state.num_probes - before
    assert 1 <= num_probes <= 2000 / SETTINGS.probe_interval
    assert sum(plan != Plan() for plan in totals.plans) == num_probes
    _, plain = rates_of_best_and_plain(HOPELESS, POOR, 4)
    assert totals.tokens_per_s >= (1 - 2 * SETTINGS.probe_share) * plain


def test_equal_observations_give_equal_plans() -> None:
    first, second = (
        VirtualPipeline(ACCELERATOR, GOOD, 4, noise=0.1).run(Planner(SETTINGS, seed=5), 300)
        for _ in range(2)
    )
    assert first.plans == second.plans


def test_state_shows_what_it_believes() -> None:
    planner = Planner(SETTINGS)
    assert planner.state.tokens_per_s == 0.0
    VirtualPipeline(ACCELERATOR, GOOD, 4).run(planner, 400)
    state = planner.state
    best, plain = rates_of_best_and_plain(ACCELERATOR, GOOD, 4)
    assert state.num_rounds == 400
    assert state.num_rows == 4
    assert state.tokens_per_s == pytest.approx(best, rel=0.05)
    assert state.plain_tokens_per_s == pytest.approx(plain, rel=0.02)
    assert state.survival[CORRECTOR][:3] == pytest.approx(survival_of(GOOD)[:3], abs=0.05)
    assert state.costs.hops_s == pytest.approx(ACCELERATOR.hops_s, rel=0.01)


def test_rows_of_several_correctors_count_by_their_number() -> None:
    planner = Planner(SETTINGS, priors=PROCESSOR)
    for _ in range(2000):
        planner.observe_round("good", 7, 7)
        planner.observe_round("bad", 7, 0)
    for _ in range(20):
        planner.next_plan({"good": 4})
    assert planner.state.plan.num_draft_tokens > 0
    for _ in range(20):
        planner.next_plan({"bad": 4, "good": 0})
    assert planner.state.plan == Plan()


def test_only_allowed_plans_are_chosen() -> None:
    settings = PlannerSettings(lengths=(3, 7), max_groups=1)
    totals = VirtualPipeline(BALANCED, GOOD, 8).run(Planner(settings), 300)
    assert {plan.num_draft_tokens for plan in totals.plans} <= {0, 3, 7}
    assert {plan.num_groups for plan in totals.plans} == {1}


def test_per_row_lengths_favour_rows_that_survive() -> None:
    planner = Planner(SETTINGS, priors=PROCESSOR)
    certain, doubtful = survival_of((0.95,) * 7), survival_of((0.3,) * 7)
    lengths = planner.row_lengths([certain, doubtful], budget=14)
    assert lengths[0] > lengths[1]
    assert sum(planner.row_lengths([certain, doubtful], budget=3)) == 3


@pytest.mark.parametrize("lengths", [(), (-1, 3)])
def test_impossible_lengths_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="lengths"):
        PlannerSettings(lengths=lengths)


@pytest.mark.parametrize("max_groups", [0, 3])
def test_impossible_groups_are_refused(max_groups: int) -> None:
    with pytest.raises(ValueError, match="max_groups"):
        PlannerSettings(max_groups=max_groups)


def test_nothing_to_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="rows"):
        Planner(SETTINGS).next_plan({CORRECTOR: 0})
