"""Snapshots become counters that only grow and gauges that hold the last number."""

import pytest

from deployments import metrics
from deployments.metrics import MetricsExport


class Recorder:
    """Counter and Gauge in one, by name."""

    values: dict[str, float]

    def __init__(self, name: str, description: str) -> None:
        assert description
        assert name not in self.values, "Ray refuses a name twice"
        self.name = name
        self.values[name] = 0

    def inc(self, step: float) -> None:
        assert step > 0, "Ray's exporter dies of steps that are not positive"
        self.values[self.name] += step

    def set(self, value: float) -> None:
        self.values[self.name] = value


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    values: dict[str, float] = {}
    recorder = type("Recorder", (Recorder,), {"values": values})
    monkeypatch.setattr(metrics, "Counter", recorder)
    monkeypatch.setattr(metrics, "Gauge", recorder)
    return values


def test_totals_add_up_and_present_numbers_follow(recorded: dict[str, float]) -> None:
    export = MetricsExport("dcoco")
    export.publish({"requests": 0}, {"running": 0})
    export.publish({"requests": 3}, {"running": 2})
    export.publish({"requests": 3}, {"running": 0})
    export.publish({"requests": 7}, {"running": 1})
    assert recorded == {"dcoco_requests": 7, "dcoco_running": 1}
