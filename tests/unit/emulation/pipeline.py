"""The ring in one process: every stage in a thread of its own, one or two groups going around."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from dcoco_core.arrays import plain_draft
from dcoco_core.planning.rounds import group_sizes
from dcoco_core.types import Draft, DraftRequest, Request, Verdict
from tests.unit.emulation.stack import Stack

T = TypeVar("T")


class Pipeline:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.verdicts: list[Verdict] = []
        self._threads = [ThreadPoolExecutor(1) for _ in range(3)]

    async def run(self, requests: Sequence[Request], num_groups: int) -> float:
        """Decodes all requests at once; seconds from the first draft to the last verdict."""
        for item in requests:
            self.stack.verifier.open(item)
        ready = self.stack.verifier.step(plain_draft())
        self.verdicts.extend(ready.verdicts)
        loop = asyncio.get_running_loop()
        began = loop.time()
        groups = split(ready.draft_request, num_groups)
        await asyncio.gather(*(self._group(group) for group in groups))
        while self.stack.verifier.num_free_slots < self.stack.num_slots:
            await self._step(plain_draft())  # rows with one token left
        elapsed = loop.time() - began
        for thread in self._threads:
            thread.shutdown()
        return elapsed

    async def _group(self, request: DraftRequest) -> None:
        drafter, corrector = self.stack.drafter, self.stack.corrector
        while request.headers:
            lattice = await self._on(1, partial(drafter.draft, request))
            draft = await self._on(2, partial(corrector.correct, lattice))
            request = await self._step(draft)

    async def _step(self, draft: Draft) -> DraftRequest:
        outcome = await self._on(0, partial(self.stack.verifier.step, draft))
        self.verdicts.extend(outcome.verdicts)
        ended = [item.request_id for item in outcome.verdicts if item.finish_reason is not None]
        await self._on(1, partial(self.stack.drafter.release, ended))
        return outcome.draft_request

    async def _on(self, stage: int, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads[stage], work)


def split(request: DraftRequest, num_groups: int) -> list[DraftRequest]:
    """A draft request by rows, headers with their context."""
    parts, row, first = [], 0, 0
    for size in group_sizes(len(request.headers), num_groups):
        headers = request.headers[row : row + size]
        count = sum(header.num_context_rows for header in headers)
        parts.append(DraftRequest(headers, request.context[first : first + count]))
        row, first = row + size, first + count
    return parts
