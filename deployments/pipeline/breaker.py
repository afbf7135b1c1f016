"""Calls to a stage that may be lost or slow: try, give up in time, leave it alone, come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger("ray.serve")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class Breaker:
    """Guards the calls to one stage.

    After a failure the stage is left alone, so that no row waits for a dead stage round after
    round, while a background check asks until it answers. The pause before the next attempt doubles
    with every failure in a row, for a stage that answers checks but is too slow to work.

    Args:
        stage: its name in the log.
        check: raises while the stage cannot work.
        deadline_s: longest wait for an answer.
    """

    def __init__(
        self, stage: str, check: Callable[[], Awaitable[object]], deadline_s: float
    ) -> None:
        self.num_failures = 0
        self._stage = stage
        self._check = check
        self._deadline_s = deadline_s
        self._pause_s = _FIRST_PAUSE_S
        self._recovery: asyncio.Task[None] | None = None

    @property
    def is_available(self) -> bool:
        """Whether the next call will be made at all."""
        return self._recovery is None

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> T | None:
        """What the stage answers, or None when it is left alone, fails or is late."""
        if not self.is_available:
            return None
        try:
            answer = await asyncio.wait_for(attempt(), self._deadline_s)
        except Exception as error:
            self.num_failures += 1
            if self._recovery is None:
                logger.warning("going on without the %s until it answers: %r", self._stage, error)
                self._recovery = asyncio.create_task(self._recover())
            return None
        self._pause_s = _FIRST_PAUSE_S
        return answer

    def close(self) -> None:
        """Stops the background check."""
        if self._recovery is not None:
            self._recovery.cancel()

    async def _recover(self) -> None:
        started = monotonic()
        while True:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            try:
                await asyncio.wait_for(self._check(), self._deadline_s)
            except Exception as error:
                logger.debug("the %s does not answer yet: %r", self._stage, error)
                continue
            self._recovery = None
            logger.info("using the %s again after %.1f s", self._stage, monotonic() - started)
            return
