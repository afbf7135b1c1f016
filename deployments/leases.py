"""What the engine knows about the requests it holds: leases, and totals over all of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic

from dcoco_core.errors import DcocoError
from dcoco_core.types import Request, Verdict


class EngineError(DcocoError):
    """The engine failed under a request; trying again may help."""


@dataclass(eq=False, slots=True)
class Lease:
    """One caller's hold on one request: what it has not read yet, and where its row is.

    Attributes:
        is_drafting: its header is out, so the row is not stepped.
        was_drafted: the drafter may hold state for it.
    """

    request: Request
    is_drafting: bool = False
    was_drafted: bool = False
    _unread: asyncio.Queue[Verdict | Exception] = field(default_factory=asyncio.Queue)
    _is_reading: bool = False
    _last_read_s: float = field(default_factory=monotonic)

    def put(self, item: Verdict | Exception) -> None:
        """For the caller to read; an exception is raised there."""
        self._unread.put_nowait(item)

    async def read(self) -> Verdict:
        """The next verdict; waits for it."""
        self._is_reading = True
        try:
            item = await self._unread.get()
        finally:
            self._is_reading, self._last_read_s = False, monotonic()
        if isinstance(item, Exception):
            raise item
        return item

    @property
    def unread_s(self) -> float:
        """For how long nobody has been reading."""
        return 0.0 if self._is_reading else monotonic() - self._last_read_s


@dataclass(slots=True)
class EngineCounts:
    """Totals since the start. Ratios are left to the reader, so that none is ever 0 / 0.

    `requests` admitted have ended as `finished`, `cancelled` or `failed` (`expired` among the
    failed) or are still there; `refused` ones never got in.
    """

    requests: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    expired: int = 0
    refused: int = 0
    steps: int = 0
    drafted_rounds: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    committed_tokens: int = 0

    def add(self, verdict: Verdict) -> None:
        """Counts what one verdict committed."""
        self.committed_tokens += len(verdict.token_ids)
        if verdict.num_drafted is not None:
            self.drafted_rounds += 1
            self.drafted_tokens += verdict.num_drafted
            self.accepted_tokens += verdict.num_accepted
