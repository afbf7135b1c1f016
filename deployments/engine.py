"""Continuous batching around a core verifier: many requests, one compute thread, no idle work.

The engine is the loop of dcoco_core/decode.py with its stages apart. Whenever the compute thread is
free it takes everything that waits: requests that ended, requests to open, drafts that came back.
A row whose draft is out is not stepped; prompts and plain rows go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dcoco_core.drafts import merge_drafts
from dcoco_core.errors import CapacityError, RequestError
from dcoco_core.protocols import Verifier
from dcoco_core.types import Draft, DraftRequest, Request, Round, Verdict
from deployments.flights import Flights
from deployments.leases import EngineCounts, EngineError, Lease
from deployments.pipeline.fallback import FallbackPath
from deployments.pipeline.transport import DraftPath

logger = logging.getLogger("ray.serve")

_MAX_FAILED_STEPS = 3


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Bounds of the engine; `AppArgs` says what each of them changes."""

    max_waiting: int = 32
    draft_deadline_s: float = 2.0
    lease_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class _Work:
    """One turn of the compute thread."""

    closing: Sequence[str]
    opening: Sequence[Request]
    drafts: Sequence[Draft]
    is_stepping: bool


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of it: requests that could not be opened, and a round or why there is none."""

    refused: dict[str, Exception]
    outcome: Round | Exception | None


class Engine:
    """Batches requests over a verifier that nobody else touches.

    Args:
        verifier: owned from here on; called from the compute thread only.
        path: where drafts come from; None decodes every request plainly.
        settings: bounds.
    """

    def __init__(
        self, verifier: Verifier, path: DraftPath | None, settings: EngineSettings
    ) -> None:
        self.counts = EngineCounts()
        self.num_slots = verifier.num_free_slots
        self._verifier = verifier
        self._settings = settings
        self._path = FallbackPath(path, settings.draft_deadline_s) if path is not None else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="verifier")
        self._leases: dict[str, Lease] = {}  # open at the verifier, by request id
        self._waiting: deque[Lease] = deque()
        self._closing: list[str] = []
        self._wake = asyncio.Event()
        self._flights = Flights(self._path, self._wake.set)
        self._loop: asyncio.Task[None] | None = None
        self._num_failed_steps = 0

    @property
    def num_running(self) -> int:
        """Requests that hold a slot."""
        return len(self._leases)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for one."""
        return len(self._waiting)

    @property
    def is_drafting(self) -> bool:
        """Whether drafts can be had at the moment; without them requests are decoded plainly."""
        return self._path is not None and self._path.is_available

    @property
    def num_draft_failures(self) -> int:
        """Draft requests that failed or were late; their rows were decoded plainly."""
        return self._path.num_failures if self._path is not None else 0

    def check_health(self) -> None:
        """Raises EngineError when the engine cannot serve any more."""
        if self._num_failed_steps >= _MAX_FAILED_STEPS:
            raise EngineError(f"the last {self._num_failed_steps} steps of the verifier failed")
        if self._loop is not None and self._loop.done():
            raise EngineError("the engine has stopped")

    async def generate(self, request: Request) -> AsyncGenerator[Verdict, None]:
        """Yields one verdict per round until one carries a finish reason.

        Closing the generator early gives the slot back before the next step.

        Raises:
            CapacityError: every slot is taken and the queue is full.
            RequestError: the request cannot be served as asked.
            EngineError: the verifier failed, or the verdicts were not read for too long.
        """
        lease = self._admit(request)
        try:
            is_running = True
            while is_running:
                verdict = await lease.read()
                is_running = verdict.finish_reason is None
                yield verdict
        finally:
            if self._drop(lease):
                self.counts.cancelled += 1

    async def close(self) -> None:
        """Ends every request with an error, and the compute thread once it is free."""
        if self._loop is not None:
            self._loop.cancel()
        self._flights.close()
        self._fail([*self._leases.values(), *self._waiting], EngineError("the server is stopping"))
        self._thread.shutdown(wait=False)

    # ------------------------------------------------------------------ requests come and go

    def _admit(self, request: Request) -> Lease:
        self.check_health()
        if self.num_running + self.num_waiting >= self.num_slots + self._settings.max_waiting:
            self.counts.refused += 1
            raise CapacityError(
                f"all {self.num_slots} slots are taken and the queue of "
                f"{self._settings.max_waiting} is full"
            )
        if request.request_id in {lease.request.request_id for lease in self._all_leases()}:
            raise RequestError(f"request {request.request_id!r} is open", field="request_id")
        lease = Lease(request)
        self.counts.requests += 1
        self._waiting.append(lease)
        if self._loop is None:
            # In a context of its own: the loop outlives the call that happens to start it, and the
            # calls it makes must not count as children of that call, to be cancelled with it.
            self._loop = asyncio.create_task(self._run(), context=contextvars.Context())
        self._wake.set()
        return lease

    def _all_leases(self) -> list[Lease]:
        return [*self._leases.values(), *self._waiting]

    def _drop(self, lease: Lease) -> bool:
        """Forgets a request that has not ended; False when it has."""
        if lease in self._waiting:
            self._waiting.remove(lease)
        elif self._leases.get(lease.request.request_id) is lease:
            self._end(lease)
        else:
            return False
        self._wake.set()
        return True

    def _end(self, lease: Lease) -> None:
        """Takes a request out; the verifier hears of it at the next turn, the drafter after it."""
        request_id = lease.request.request_id
        del self._leases[request_id]
        self._closing.append(request_id)
        if lease.was_drafted:
            self._flights.forget([request_id])

    def _fail(self, leases: Iterable[Lease], error: Exception) -> None:
        for lease in leases:
            if self._drop(lease):
                self.counts.failed += 1
                lease.put(error)

    # ---------------------------------------------------------------------------- the loop

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while (work := self._take_work()) is not None:
                    await self._turn(work)
                self._flights.release()
        except Exception as error:
            logger.exception("the engine has stopped")
            self._fail(self._all_leases(), EngineError(f"the engine has stopped: {error!r}"))
            raise

    def _take_work(self) -> _Work | None:
        """Everything that waits for the compute thread; None when nothing does."""
        closing, self._closing = self._closing, []
        num_opening = min(len(self._waiting), self.num_slots - len(self._leases))
        opening = [self._waiting.popleft() for _ in range(num_opening)]
        self._leases.update({lease.request.request_id: lease for lease in opening})
        drafts: list[Draft] = []
        for request, draft in self._flights.take_landed():
            drafts.append(draft)
            self._set_drafting(request, False)
        is_stepping = any(not lease.is_drafting for lease in self._leases.values())
        if not closing and not is_stepping:
            return None
        return _Work(closing, [lease.request for lease in opening], drafts, is_stepping)

    async def _turn(self, work: _Work) -> None:
        done = await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, work)
        for request_id, error in done.refused.items():
            if (lease := self._leases.get(request_id)) is not None:
                self._fail([lease], error)
        if isinstance(done.outcome, Exception):
            self._num_failed_steps += 1
            error = EngineError(f"the verifier failed: {done.outcome!r}")
            self._fail(list(self._leases.values()), error)
        elif done.outcome is not None:
            self._num_failed_steps = 0
            self._deliver(done.outcome)

    def _compute(self, work: _Work) -> _Done:
        """Runs on the compute thread, the only one that touches the verifier."""
        refused: dict[str, Exception] = {}
        try:
            for request_id in work.closing:
                self._verifier.close(request_id)
            for request in work.opening:
                try:
                    self._verifier.open(request)
                except (RequestError, CapacityError) as error:
                    refused[request.request_id] = error
            if not work.is_stepping:
                return _Done(refused, None)
            return _Done(refused, self._verifier.step(merge_drafts(work.drafts)))
        except Exception as error:
            logger.exception("a step of the verifier failed")
            return _Done(refused, error)

    def _deliver(self, outcome: Round) -> None:
        self.counts.steps += 1
        for verdict in outcome.verdicts:
            lease = self._leases.get(verdict.request_id)
            if lease is not None and lease.request.generation == verdict.generation:
                self._hand_over(lease, verdict)
        self._flights.release()
        if outcome.draft_request.headers:
            self._send(outcome.draft_request)

    def _hand_over(self, lease: Lease, verdict: Verdict) -> None:
        self.counts.add(verdict)
        lease.put(verdict)
        if verdict.finish_reason is not None:
            self.counts.finished += 1
            self._end(lease)
        elif lease.unread_s > self._settings.lease_timeout_s:
            self.counts.expired += 1
            waited = f"nobody has read for {self._settings.lease_timeout_s:g} s"
            self._fail([lease], EngineError(f"the request was given up: {waited}"))

    def _send(self, request: DraftRequest) -> None:
        self._set_drafting(request, True)
        # Rows that were dropped during the step travel once more; the drafter is to forget them.
        gone = {header.request_id for header in request.headers} - self._leases.keys()
        self._flights.forget(gone)
        self._flights.send(request)

    def _set_drafting(self, request: DraftRequest, is_drafting: bool) -> None:
        for header in request.headers:
            lease = self._leases.get(header.request_id)
            if lease is not None and lease.request.generation == header.generation:
                lease.is_drafting = is_drafting
                lease.was_drafted = True
