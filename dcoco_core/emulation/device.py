"""An emulated device: busy for as long as a profile says, with one piece of work at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a device has done since its start, in seconds of the profile stretched by time_scale.

    Attributes:
        num_pieces: pieces of work.
        busy_s: for how long they kept the device busy.
        late_s: by how much their ends were noticed late, in sum. Sleeping is not exact, and a
            machine without a free core makes it worse: a large share of busy_s voids a measurement.
    """

    num_pieces: int = 0
    busy_s: float = 0.0
    late_s: float = 0.0


class Device:
    """Several stages may share one. Safe to use from threads.

    Work blocks the calling thread, as a stage of the protocol does; it sleeps and needs no core. A
    piece that has waited starts at the very moment the one before it was due to end, so lateness in
    waking up does not add up over a queue. Threads sleep to within a tenth of a millisecond, where
    an event loop's timers round up to whole ones.

    Args:
        time_scale: stretches every piece, for machines that cannot keep up in real time.
        clock: seconds that only grow.
        sleep: waits for so many of them.
    """

    def __init__(
        self,
        time_scale: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not time_scale > 0.0:
            raise ValueError(f"time_scale must be positive, got {time_scale}")
        self.time_scale = time_scale
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._use = DeviceUse()

    @property
    def use(self) -> DeviceUse:
        """A snapshot."""
        return self._use

    def now(self) -> float:
        """The device's clock, for `work`."""
        return self._clock()

    def work(self, seconds: float, asked_at: float) -> None:
        """Returns when a piece of work of `seconds` is done.

        Args:
            seconds: of the profile, not yet stretched.
            asked_at: when the piece was handed over, on the device's clock. What the caller has
                computed since then happens in the shadow of the modelled time.
        """
        duration = seconds * self.time_scale
        with self._lock:
            ends = self._free_at = max(asked_at, self._free_at) + duration
        while (remaining := ends - self._clock()) > 0.0:
            self._sleep(remaining)
        with self._lock:
            use = self._use
            self._use = DeviceUse(use.num_pieces + 1, use.busy_s + duration, use.late_s - remaining)
