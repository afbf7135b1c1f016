from __future__ import annotations

from random import Random

import numpy as np
import pytest
import scipy.optimize

from dcoco_core.planning.costs import CostFit, StageCost, non_negative_least_squares

TRUE = StageCost(4e-3, 2e-4, 1e-5)


def observe(fit: CostFit, cost: StageCost, num_batches: int, noise: float, seed: int = 0) -> None:
    random = Random(seed)
    for _ in range(num_batches):
        rows = random.randint(1, 32)
        tokens = rows * random.choice((1, 4, 8, 16))
        fit.observe(rows, tokens, cost.seconds(rows, tokens) * random.lognormvariate(0, noise))


def assert_predicts(fit: CostFit, cost: StageCost, rel: float) -> None:
    for rows, tokens in [(1, 1), (1, 16), (8, 8), (32, 512), (16, 64)]:
        assert fit.cost.seconds(rows, tokens) == pytest.approx(cost.seconds(rows, tokens), rel=rel)


def test_recovers_costs_without_noise() -> None:
    fit = CostFit()
    observe(fit, TRUE, 300, 0.0)
    assert fit.cost.fixed_s == pytest.approx(TRUE.fixed_s, rel=1e-3)
    assert fit.cost.row_s == pytest.approx(TRUE.row_s, rel=1e-2)
    assert fit.cost.token_s == pytest.approx(TRUE.token_s, rel=1e-2)
    assert fit.num_observations == 300


def test_recovers_times_under_noise() -> None:
    fit = CostFit()
    observe(fit, TRUE, 400, 0.1)
    assert_predicts(fit, TRUE, 0.08)


def test_costs_are_never_negative() -> None:
    fit = CostFit()
    for rows, seconds in [(1, 5e-3), (8, 4e-3), (32, 1e-3)] * 20:  # falling: no such stage
        fit.observe(rows, rows, seconds)
    cost = fit.cost
    assert min(cost.fixed_s, cost.row_s, cost.token_s) >= 0.0


def test_what_is_not_seen_any_more_is_kept() -> None:
    """Thousands of equal batches say nothing of other ones."""
    fit = CostFit()
    observe(fit, TRUE, 200, 0.02)
    random = Random(1)
    for _ in range(5000):
        fit.observe(4, 4, TRUE.seconds(4, 4) * random.lognormvariate(0, 0.02))
    assert_predicts(fit, TRUE, 0.2)


@pytest.mark.parametrize(("factor", "num_batches"), [(0.1, 60), (0.5, 12), (2.0, 12), (30.0, 12)])
def test_a_stage_that_changes_is_noticed_soon(factor: float, num_batches: int) -> None:
    fit = CostFit()
    observe(fit, TRUE, 200, 0.05)
    changed = TRUE.scaled(factor)
    observe(fit, changed, num_batches, 0.05, seed=2)
    assert_predicts(fit, changed, 0.25)


def test_single_slow_batches_count_little() -> None:
    fit = CostFit()
    observe(fit, TRUE, 200, 0.02)
    fit.observe(4, 16, 100 * TRUE.seconds(4, 16))
    assert_predicts(fit, TRUE, 0.05)


def test_prior_holds_until_something_is_seen() -> None:
    assert CostFit(TRUE).cost == TRUE


def test_agrees_with_scipy() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        matrix, wanted = random.normal(size=(10, 3)), random.normal(size=10)
        expected, _ = scipy.optimize.nnls(matrix, wanted)
        found = non_negative_least_squares(matrix.T @ matrix, matrix.T @ wanted)
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("batch", [(0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0), (1, 1, float("nan"))])
def test_impossible_batches_are_refused(batch: tuple[int, int, float]) -> None:
    with pytest.raises(ValueError, match="batch"):
        CostFit().observe(*batch)


def test_a_half_life_is_positive() -> None:
    with pytest.raises(ValueError, match="half_life"):
        CostFit(half_life=0)


def test_an_empty_batch_takes_no_time() -> None:
    assert TRUE.seconds(0, 0) == 0.0
