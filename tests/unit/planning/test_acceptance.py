from __future__ import annotations

from random import Random

import pytest

from dcoco_core.planning.acceptance import AcceptanceEstimate, expected_committed, survival_of


def observe(estimate: AcceptanceEstimate, rates: list[float], num_rounds: int, length: int) -> None:
    random = Random(3)
    for _ in range(num_rounds):
        num_accepted = 0
        while num_accepted < length and random.random() < rates[num_accepted]:
            num_accepted += 1
        estimate.observe(length, num_accepted)


def test_finds_the_rates() -> None:
    rates = [0.9, 0.8, 0.6, 0.7]
    estimate = AcceptanceEstimate(4, half_life=2000)
    observe(estimate, rates, 4000, 4)
    assert estimate.rates == pytest.approx(rates, abs=0.05)
    assert estimate.survival == pytest.approx(survival_of(rates), abs=0.05)


def test_places_never_tried_are_like_the_one_before() -> None:
    estimate = AcceptanceEstimate(5)
    observe(estimate, [0.9, 0.9], 1000, 2)
    assert estimate.rates[2:] == (estimate.rates[1],) * 3


def test_short_drafts_do_not_wear_down_what_is_known_of_later_places() -> None:
    estimate = AcceptanceEstimate(4)
    observe(estimate, [0.9, 0.9, 0.2, 0.2], 1000, 4)
    before = estimate.rates[2]
    observe(estimate, [0.9], 5000, 1)
    assert estimate.rates[2] == pytest.approx(before, abs=0.01)


def test_follows_a_change() -> None:
    estimate = AcceptanceEstimate(1, half_life=50)
    observe(estimate, [0.9], 500, 1)
    observe(estimate, [0.1], 500, 1)
    assert estimate.rates[0] == pytest.approx(0.1, abs=0.1)


def test_starts_from_its_prior() -> None:
    assert AcceptanceEstimate(2, prior_rate=0.5).survival == (0.5, 0.25)


def test_expected_committed_counts_the_targets_own_token() -> None:
    assert expected_committed((0.5, 0.25), 0) == 1.0
    assert expected_committed((0.5, 0.25), 2) == 1.75
    with pytest.raises(ValueError, match="2 places"):
        expected_committed((0.5, 0.25), 3)


@pytest.mark.parametrize(("drafted", "accepted"), [(1, 2), (5, 0), (2, -1)])
def test_impossible_counts_are_refused(drafted: int, accepted: int) -> None:
    with pytest.raises(ValueError, match="num_accepted"):
        AcceptanceEstimate(4).observe(drafted, accepted)


def test_an_impossible_prior_is_refused() -> None:
    with pytest.raises(ValueError, match="prior_rate"):
        AcceptanceEstimate(4, prior_rate=1.5)
