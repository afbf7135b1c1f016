"""The Verifier's handle as a backend: whose errors come out, and when the call is cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
from ray.serve.exceptions import BackPressureError

from dcoco_core.errors import CapacityError, RequestError
from dcoco_core.types import FinishReason, Limits, Request, Verdict
from deployments.leases import EngineError
from deployments.openai_api.backend import BackendUnavailableError, Health
from deployments.router import HandleBackend

REQUEST = Request("r", (1, 2), Limits(4))
ROUNDS = (
    Verdict("r", 0, 2, (5,), None, 0),
    Verdict("r", 0, 3, (6, 7), 3, 1, FinishReason.LENGTH),
)


@dataclass
class FakeCall:
    """One handle call: yields or returns what it was given, and notes its cancellation.

    Refusals are items; other exceptions are raised.
    """

    items: tuple[Any, ...]
    is_cancelled: bool = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        for item in self.items:
            if isinstance(item, Exception) and type(item) not in (CapacityError, RequestError):
                raise item
            yield item

    def __await__(self) -> Any:
        return self._result().__await__()

    async def _result(self) -> Any:
        return await anext(aiter(self))

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class FakeHandle:
    """A handle both of whose methods play the same items."""

    items: tuple[Any, ...]
    calls: list[FakeCall] = field(default_factory=list)

    @property
    def generate(self) -> FakeHandle:
        return self

    @property
    def health(self) -> FakeHandle:
        return self

    def options(self, *, stream: bool, _by_reference: bool) -> FakeHandle:
        assert stream
        assert not _by_reference
        return self

    def remote(self, *requests: Request) -> FakeCall:
        del requests
        self.calls.append(FakeCall(self.items))
        return self.calls[-1]


def backend_of(*items: Any) -> tuple[HandleBackend, FakeHandle]:
    handle = FakeHandle(items)
    return HandleBackend(cast("Any", handle)), handle


def from_replica(cause: Exception) -> Exception:
    """As Ray raises what a replica raised."""
    error = RayTaskError("generate", "traceback", cause).as_instanceof_cause()
    assert isinstance(error, type(cause))
    return error


async def verdicts_of(backend: HandleBackend) -> list[Verdict]:
    async with aclosing(backend.generate(REQUEST)) as verdicts:
        return [verdict async for verdict in verdicts]


async def test_a_request_that_ends_is_not_cancelled() -> None:
    backend, handle = backend_of(*ROUNDS)
    assert await verdicts_of(backend) == [*ROUNDS]
    async with aclosing(backend.generate(REQUEST)) as verdicts:
        assert await anext(verdicts) == ROUNDS[0]
        assert await anext(verdicts) == ROUNDS[1]  # closed before the generator says it is over
    assert [call.is_cancelled for call in handle.calls] == [False, False]


async def test_leaving_early_cancels_the_call() -> None:
    backend, handle = backend_of(*ROUNDS)
    async with aclosing(backend.generate(REQUEST)) as verdicts:
        await anext(verdicts)
    assert handle.calls[0].is_cancelled


async def test_refusals_come_as_items_and_are_raised() -> None:
    backend, handle = backend_of(CapacityError("all slots are taken"))
    with pytest.raises(CapacityError, match="all slots"):
        await verdicts_of(backend)
    assert not handle.calls[0].is_cancelled


async def test_the_replicas_own_errors_come_out_unwrapped() -> None:
    backend, _ = backend_of(from_replica(CapacityError("all slots are taken")))
    with pytest.raises(CapacityError) as busy:
        await verdicts_of(backend)
    assert type(busy.value) is CapacityError
    backend, _ = backend_of(from_replica(RequestError("cannot do that", field="seed")))
    with pytest.raises(RequestError) as bad:
        await verdicts_of(backend)
    assert bad.value.field == "seed"


@pytest.mark.parametrize(
    "error",
    [
        from_replica(EngineError("the verifier failed")),
        EngineError("the verifier failed"),
        ActorDiedError(),
        ActorUnavailableError("the actor is gone", b"\x00" * 16),
    ],
)
async def test_a_lost_replica_or_engine_is_unavailable(error: Exception) -> None:
    backend, _ = backend_of(ROUNDS[0], error)
    with pytest.raises(BackendUnavailableError):
        await verdicts_of(backend)
    backend, _ = backend_of(error)
    with pytest.raises(BackendUnavailableError):
        await backend.health()


async def test_serves_own_backpressure_is_capacity() -> None:
    backend, _ = backend_of(BackPressureError(num_queued_requests=5, max_queued_requests=5))
    with pytest.raises(CapacityError):
        await verdicts_of(backend)


async def test_health_is_passed_on() -> None:
    state = Health(True, {"verifier": "ready"})
    backend, _ = backend_of(state)
    assert await backend.health() == state
