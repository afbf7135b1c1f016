from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from dcoco_core.planning.costs import StageCost
from dcoco_core.planning.rounds import (
    Plan,
    RoundCosts,
    best_of,
    group_sizes,
    plans,
    round_seconds,
    tokens_per_second,
)
from tests.unit.repository import ROOT

COSTS = RoundCosts(
    verifier=StageCost(5.0, 1.0, 0.1),
    drafter=StageCost(3.0, 0.5, 0.0),
    corrector=StageCost(1.0),
    hops_s=0.25,
)


def test_one_group_takes_the_sum() -> None:
    verify, draft = 5 + 4 + 0.1 * 4 * 8, 3 + 0.5 * 4
    assert round_seconds(COSTS, Plan(7), 4) == pytest.approx(verify + draft + 1 + 0.25)


def test_plain_decoding_takes_the_verifier_alone() -> None:
    assert round_seconds(COSTS, Plan(0), 4) == pytest.approx(5 + 4 + 0.1 * 4)


def test_two_groups_take_the_slowest_loop() -> None:
    per_group = 5 + 2 + 0.1 * 2 * 8, 3 + 0.5 * 2, 1.0
    assert round_seconds(COSTS, Plan(7, 2), 4) == pytest.approx(2 * per_group[0])
    slow = replace(COSTS, drafter=StageCost(30.0))
    assert round_seconds(slow, Plan(7, 2), 4) == pytest.approx(60.0)
    far = replace(COSTS, hops_s=100.0)
    assert round_seconds(far, Plan(7, 2), 4) == pytest.approx(sum(per_group) + 100)


def test_a_corrector_on_the_drafters_device_queues_there() -> None:
    costs = replace(COSTS, drafter=StageCost(10.0), corrector=StageCost(10.0))
    apart = round_seconds(costs, Plan(7, 2), 2)
    together = round_seconds(replace(costs, is_corrector_apart=False), Plan(7, 2), 2)
    assert [apart, together] == pytest.approx([27.05, 40.0])


@pytest.mark.parametrize(
    ("num_rows", "num_groups", "sizes"),
    [(1, 1, [1]), (1, 2, [1]), (7, 2, [4, 3]), (8, 2, [4, 4]), (5, 1, [5])],
)
def test_groups_are_as_equal_as_possible(num_rows: int, num_groups: int, sizes: list[int]) -> None:
    assert group_sizes(num_rows, num_groups) == sizes


def test_every_plan_is_offered_once() -> None:
    assert list(plans((3, 0, 3), 2, 4)) == [Plan(0), Plan(3), Plan(3, 2)]
    assert list(plans((0, 3), 2, 1)) == [Plan(0), Plan(3)]
    assert list(plans((0, 3), 1, 4)) == [Plan(0), Plan(3)]


def test_best_of_is_the_best() -> None:
    survival = (0.8, 0.6, 0.5)
    candidates = list(plans(range(4), 2, 6))
    best, rate = best_of(COSTS, survival, candidates, 6)
    rates = {plan: tokens_per_second(COSTS, survival, plan, 6) for plan in candidates}
    assert rate == rates[best] == max(rates.values())


@pytest.mark.parametrize("module", ["planner", "lengths"])
def test_loads_without_torch(module: str) -> None:
    name = f"dcoco_core.planning.{module}"
    code = f"import sys, {name}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
