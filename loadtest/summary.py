"""Figures of a run out of its samples, by the definitions of docs/loadtest.md."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.samples import Sample, read_samples

PERCENTILES = (50, 90, 99)


def distribution(values: Iterable[float]) -> dict[str, float] | None:
    """n, mean, percentiles and maximum, in the unit of `values`; None of nothing."""
    array = np.asarray(list(values))
    if not len(array):
        return None
    points = {f"p{p}": float(np.percentile(array, p)) for p in PERCENTILES}
    return {"n": len(array), "mean": float(array.mean()), **points, "max": float(array.max())}


def summarise(samples: Sequence[Sample]) -> dict[str, Any]:
    """One arm at one load. Only `ok` requests count; errors are counted by their status.

    `tokens_per_s` is the completion tokens of `ok` requests over the time from the first request
    sent to the last one ended.
    """
    finished = [sample for sample in samples if sample.status == "ok"]
    span_s = max((s.sent_s + s.end_s for s in samples), default=0.0) - min(
        (s.sent_s for s in samples), default=0.0
    )
    num_tokens = sum(sample.num_tokens for sample in finished)
    lengths = [s.speculation["mean_acceptance_length"] for s in finished if s.speculation]
    return {
        "statuses": dict(Counter(sample.status for sample in samples)),
        "tokens_per_s": num_tokens / span_s if span_s else 0.0,
        "e2e_s": distribution(s.end_s for s in finished),
        "ttft_s": distribution(s.ttft_s for s in finished if s.ttft_s is not None),
        "tpot_s": distribution(s.tpot_s for s in finished if s.tpot_s is not None),
        "inter_chunk_s": distribution(gap for s in finished for gap in s.inter_chunk_s),
        "acceptance_length": distribution(lengths),
    }


def by_arm(samples: Iterable[Sample]) -> dict[str, Any]:
    """A summary for each arm at each number of clients: `{arm: {clients: summary}}`."""
    cells: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        cells.setdefault((sample.arm, sample.num_clients), []).append(sample)
    summary: dict[str, Any] = {}
    for (arm, num_clients), cell in sorted(cells.items()):
        summary.setdefault(arm, {})[str(num_clients)] = summarise(cell)
    return summary


if __name__ == "__main__":
    print(json.dumps(by_arm(read_samples(map(Path, sys.argv[1:]))), indent=2))
