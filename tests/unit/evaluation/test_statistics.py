"""Means, ratios and intervals on requests whose figures are known."""

from __future__ import annotations

import random

import pytest

from dcoco_core.evaluation.figures import ALL_SETS, best_sequential, sets_longer, setting_figures
from dcoco_core.evaluation.results import RequestResult, merge_correctors
from dcoco_core.evaluation.statistics import (
    captured_gap,
    difference,
    mean_length,
    pooled_length,
    ratio,
    sample_of,
)
from dcoco_core.metrics import SpeculationRecord


def record(tokens: int, rounds: int) -> SpeculationRecord:
    return SpeculationRecord(tokens, [rounds, 0], [0, rounds])


def result(set_name: str, *, loops: bool = False, **records: SpeculationRecord) -> RequestResult:
    prompt = repr(sorted((name, r.num_committed) for name, r in records.items()))
    return RequestResult(set_name, prompt, loops, 10, records)


RESULTS = [
    result("a", none=record(10, 10), dcoco=record(15, 10), oracle=record(20, 10)),
    result("a", none=record(60, 20), dcoco=record(60, 20), oracle=record(60, 20), loops=True),
    result("b", none=record(30, 15), dcoco=record(45, 15), oracle=record(60, 15)),
]


def test_every_set_counts_alike_in_the_mean_and_every_round_in_the_pool() -> None:
    sample = sample_of(RESULTS, ["none", "dcoco", "oracle"])
    assert sample.n == 3
    assert sample.estimate(mean_length("none")).value == pytest.approx((2 + 2) / 2)
    assert sample.estimate(pooled_length("none")).value == pytest.approx(100 / 45)
    assert sample.estimate(mean_length("dcoco")).value == pytest.approx((2.25 + 3) / 2)
    assert sample.estimate(ratio("dcoco", "none")).value == pytest.approx(2.625 / 2)
    assert sample.estimate(difference("dcoco", "none")).value == pytest.approx(0.625)
    assert sample.estimate(captured_gap("dcoco", "none", "oracle")).value == pytest.approx(0.5)


def test_requests_without_a_draft_are_left_out() -> None:
    short = result("a", none=SpeculationRecord(), dcoco=SpeculationRecord())
    assert sample_of([*RESULTS[:1], short], ["none", "dcoco"]).n == 1
    with pytest.raises(ValueError, match="nothing to measure"):
        sample_of([short], ["none"])


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """100 samples of 60: 95 covers are expected, with a standard deviation of 2.2 (and a little
    less coverage for percentile intervals); below 86 the chance is under 1e-4."""
    generator = random.Random(0)
    covered = 0
    for _ in range(100):
        lengths = [generator.choice([10, 20, 30, 40]) for _ in range(60)]
        sample = sample_of([result("a", x=record(n, 10)) for n in lengths], ["x"], 400)
        estimate = sample.estimate(mean_length("x"))
        covered += estimate.low <= 2.5 <= estimate.high
    assert 86 <= covered < 100


def test_pairing_narrows_a_ratio() -> None:
    """Requests differ by a factor of 10, their ratio hardly: the interval is that of the ratio."""
    generator = random.Random(1)
    paired, shuffled = [], []
    tokens = [generator.randint(100, 1000) for _ in range(50)]
    for number, n in enumerate(tokens):
        better = record(n + n // 10, 100)
        paired.append(result("a", none=record(n, 100), dcoco=better))
        shuffled.append(result("a", none=record(tokens[number - 7], 100), dcoco=better))
    narrow, wide = (
        sample_of(r, ["none", "dcoco"]).estimate(ratio("dcoco", "none")) for r in (paired, shuffled)
    )
    assert narrow.low > 1.09
    assert narrow.high < 1.11
    assert wide.high - wide.low > 10 * (narrow.high - narrow.low)


def test_figures_of_a_setting() -> None:
    figures = setting_figures(RESULTS)
    assert list(figures) == ["a", "b", ALL_SETS]
    total = figures[ALL_SETS]
    assert total.loop_share == pytest.approx(1 / 3)
    assert total.without_loops is not None
    assert total.without_loops["none"].value == pytest.approx((1 + 2) / 2)
    assert total.without_loops["none"].n == 2
    assert total.correctors["none"].ratio is None
    assert total.correctors["oracle"].captured_gap is None
    gap = figures["b"].correctors["dcoco"].captured_gap
    assert gap is not None
    assert gap.value == pytest.approx(0.5)


def test_a_set_of_loops_has_no_figure_without_them() -> None:
    assert setting_figures(RESULTS[1:])["a"].without_loops is None


def test_the_best_sequential_corrector_is_compared() -> None:
    records = {"dcoco": record(24, 10), "domino": record(20, 10), "dspark-rnn": record(22, 10)}
    both = [RequestResult("a", "prompt", False, 10, records)]
    total = setting_figures(both)[ALL_SETS]
    assert best_sequential(total) == "dspark-rnn"
    assert list(total.dcoco_over) == ["domino", "dspark-rnn"]
    assert total.dcoco_over["dspark-rnn"].value == pytest.approx(24 / 22)
    assert setting_figures(RESULTS)["b"].dcoco_over["none"].value == pytest.approx(1.5)
    assert best_sequential(setting_figures(RESULTS)[ALL_SETS]) is None


def test_sets_are_counted_whose_interval_is_above_one() -> None:
    """Surely better in a, sometimes better in b, never in c, and d has too few requests."""

    def pair(set_name: str, none: int, dcoco: int) -> RequestResult:
        return result(set_name, none=record(none, 10), dcoco=record(dcoco, 10))

    sure = [pair("a", 20 + n, 24 + n) for n in range(5)]
    unsure = [pair("b", 20 + n, 20 + n + (-3, 8, -3, 0, 1)[n]) for n in range(5)]
    equal = [pair("c", 20 + n, 20 + n) for n in range(5)]
    few = [pair("d", 20 + n, 24 + n) for n in range(4)]
    assert sets_longer(setting_figures([*sure, *unsure, *equal, *few])) == {"dcoco": 1}
    assert sets_longer(setting_figures([result("a", none=record(20, 10))])) == {}


def test_correctors_that_decoded_apart_become_one_result_per_prompt() -> None:
    def one(prompt: str, name: str, loops: bool, tokens: int) -> RequestResult:
        return RequestResult("a", prompt, loops, tokens, {name: record(tokens, 5)})

    merged = merge_correctors(
        [
            [one("p", "none", False, 10), one("q", "none", False, 10)],
            [one("p", "dcoco", True, 20)],
        ]
    )
    assert merged == [
        RequestResult("a", "p", True, 15, {"none": record(10, 5), "dcoco": record(20, 5)})
    ]
