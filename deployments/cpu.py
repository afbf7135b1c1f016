"""How much the machine's cores have worked: two readings tell whether they were saturated."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = (3, 4)  # the fields "idle" and "iowait" of a line, see proc(5)
_NOT_A_KIND = 8  # what follows counts guests, which "user" and "nice" include


def cpu_use() -> dict[str, float]:
    """`cores` of the machine, `busy_core_s` of all of them since it started, `at_s` of a clock.

    Between two readings the difference of busy_core_s over cores times the difference of at_s is
    the share of the machine that was in use, by whatever process. busy_core_s is missing where the
    kernel does not tell.
    """
    facts: dict[str, float] = {"cores": os.cpu_count() or 1, "at_s": time.monotonic()}
    try:
        fields = [int(field) for field in _STAT.read_text().split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError):
        return facts
    ticks = sum(n for place, n in enumerate(fields[:_NOT_A_KIND]) if place not in _IDLE)
    return facts | {"busy_core_s": ticks / os.sysconf("SC_CLK_TCK")}
