"""Drafts on their way: out to the drafter, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from dcoco_core.types import Draft, DraftRequest
from deployments.pipeline.fallback import FallbackPath, undrafted


class Flights:
    """Sends draft requests and keeps what comes back until the engine takes it.

    Args:
        path: None has every row back at once without proposals.
        on_landing: called whenever drafts have come back.
    """

    def __init__(self, path: FallbackPath | None, on_landing: Callable[[], None]) -> None:
        self._path = path
        self._on_landing = on_landing
        self._num_out = 0
        self._landed: list[tuple[DraftRequest, Draft]] = []
        self._ended: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, request: DraftRequest) -> None:
        """Every row of the request will come back, drafted or not."""
        if self._path is None:
            self._landed.append((request, undrafted(request.headers)))
        else:
            self._num_out += 1
            self._spawn(self._fly(self._path, request))

    def take_landed(self) -> list[tuple[DraftRequest, Draft]]:
        """What was asked and what came of it, once all that are out have come back.

        Waiting for the last one keeps the rows together: a second group pays only where a step
        costs the target less than a draft and its hops.
        """
        if self._num_out:
            return []
        landed, self._landed = self._landed, []
        return landed

    def forget(self, request_ids: Iterable[str]) -> None:
        """Notes who has ended; `release` says so."""
        self._ended.update(request_ids)

    def release(self) -> None:
        """Tells the drafter who has ended, but not while a row of theirs may be on its way."""
        if self._path is not None and self._ended and self._num_out == 0:
            released, self._ended = sorted(self._ended), set()
            self._spawn(self._path.release(released))

    def close(self) -> None:
        """Gives up on everything that is out."""
        for task in self._tasks:
            task.cancel()
        if self._path is not None:
            self._path.close()

    async def _fly(self, path: FallbackPath, request: DraftRequest) -> None:
        draft = await path.draft(request)
        self._num_out -= 1
        self._landed.append((request, draft))
        self._on_landing()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)  # the event loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)
