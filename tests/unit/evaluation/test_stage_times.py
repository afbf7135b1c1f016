"""Stages of one batch are all timed, with medians between their quartiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcoco_core.evaluation.replay import Recorded
from dcoco_core.evaluation.stage_times import Spread, time_stages
from dcoco_core.types import Limits, Request, Speculation
from tests.unit.evaluation.tiny_stack import tiny_stack


def test_spread_is_median_and_quartiles_in_milliseconds() -> None:
    spread = Spread.of([0.001, 0.005, 0.002, 0.004, 0.003])
    assert (spread.median, spread.low, spread.high) == pytest.approx((3, 2, 4))
    assert str(spread) == "3.00 [2.00, 4.00]"


@pytest.mark.parametrize("num_rows", [1, 6])
def test_every_stage_is_timed(tmp_path: Path, num_rows: int) -> None:
    stack = tiny_stack(tmp_path)
    request = Request("r", tuple(range(65, 80)), Limits(8), speculation=Speculation(5))
    times = time_stages(stack, [Recorded(request, (70, 71, 72))], num_rows, repeats=3)
    assert (times.num_rows, times.num_repeats) == (num_rows, 3)
    assert list(times.correct_ms) == list(stack.correctors)
    for spread in (times.verify_ms, times.draft_ms, *times.correct_ms.values()):
        assert 0 < spread.low <= spread.median <= spread.high
    assert times.correct_over_rest("dcoco") == pytest.approx(
        times.correct_ms["dcoco"].median / (times.verify_ms.median + times.draft_ms.median)
    )
