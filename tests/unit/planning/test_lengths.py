from __future__ import annotations

from itertools import product

import pytest

from dcoco_core.planning.acceptance import survival_of
from dcoco_core.planning.lengths import row_lengths


def rate(survivals: list[tuple[float, ...]], lengths: tuple[int, ...], token_s: float) -> float:
    committed = sum(1 + sum(row[:n]) for row, n in zip(survivals, lengths, strict=True))
    return committed / (1.0 + token_s * sum(lengths))


@pytest.mark.parametrize("token_s", [0.001, 0.05, 0.2, 1.0, 5.0])
def test_no_other_lengths_commit_more_per_second(token_s: float) -> None:
    survivals = [survival_of((first,) * 3) for first in (0.95, 0.8, 0.4)]
    lengths = row_lengths(survivals, lambda count: 1.0 + token_s * count, budget=9)
    every = product(range(4), repeat=3)
    best = max(rate(survivals, other, token_s) for other in every)
    assert rate(survivals, lengths, token_s) == pytest.approx(best)


def test_the_budget_goes_to_the_likeliest_proposals() -> None:
    survivals = [(0.9, 0.8, 0.7), (0.85, 0.3, 0.2)]
    assert row_lengths(survivals, lambda _: 1.0, budget=3) == (2, 1)
    assert row_lengths(survivals, lambda _: 1.0, budget=0) == (0, 0)
    assert row_lengths(survivals, lambda _: 1.0, budget=100) == (3, 3)


def test_rows_may_draft_fewer_places_than_others() -> None:
    assert row_lengths([(), (0.5,)], lambda _: 1.0, budget=5) == (0, 1)


@pytest.mark.parametrize("survival", [(0.5, 0.6), (1.1,), (0.5, -0.1)])
def test_survival_must_fall(survival: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="row 1"):
        row_lengths([(0.5,), survival], lambda _: 1.0, budget=5)
