"""The time that is left follows from what this run did, not from what it found done."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dcoco_core.evaluation import progress
from dcoco_core.evaluation.progress import WorkBar


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_time_left(clock: Clock) -> None:
    with WorkBar(Console(file=io.StringIO()), total=100) as bar:
        bar.skip(50)
        assert bar.time_left == ""
        bar.begin("greedy/ifeval")
        clock.now += 600
        bar.advance(10)
        assert bar.time_left == "40 min left"
        bar.skip(10)
        assert bar.time_left == "30 min left"
        clock.now += 3000
        bar.advance(10)
        assert bar.time_left == "60 min left"
        bar.advance(20)
        assert bar.time_left == "0 min left"


def test_hours(clock: Clock) -> None:
    bar = WorkBar(Console(file=io.StringIO()), total=100)
    clock.now += 360
    bar.advance(2)
    assert bar.time_left == "4.9 h left"
