"""Exports totals and present numbers through Ray's metrics agent (Prometheus)."""

from __future__ import annotations

from collections.abc import Mapping

from ray.serve.metrics import Counter, Gauge


class MetricsExport:
    """Publishes snapshots. Ray's counters only grow by steps, so differences are what is added."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._last: dict[str, int] = {}

    def publish(self, totals: Mapping[str, int], present: Mapping[str, int]) -> None:
        """`totals` never fall and become counters; `present` numbers become gauges."""
        for name, value in totals.items():
            if name not in self._counters:
                self._counters[name] = Counter(f"{self._prefix}_{name}", f"{name} since the start")
            step = value - self._last.get(name, 0)
            if step > 0:
                self._counters[name].inc(step)
            self._last[name] = value
        for name, value in present.items():
            if name not in self._gauges:
                self._gauges[name] = Gauge(f"{self._prefix}_{name}", f"{name} at present")
            self._gauges[name].set(value)
