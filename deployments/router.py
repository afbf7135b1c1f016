"""The Router deployment: the OpenAI API in front of the Verifier's handle. Imports no torch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException

from dcoco_core.errors import CapacityError
from dcoco_core.types import Request, Verdict
from deployments.leases import EngineError
from deployments.openai_api.application import create_app
from deployments.openai_api.backend import (
    Backend,
    BackendUnavailableError,
    Health,
    ModelFacts,
    Refusal,
)
from deployments.openai_api.settings import HttpSettings
from deployments.openai_api.tokenizer import ApiTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI
    from ray.serve.handle import DeploymentHandle


class _VerdictStream(Protocol):
    """What a streaming handle call returns."""

    def __aiter__(self) -> AsyncIterator[Verdict | Refusal]: ...

    def cancel(self) -> None: ...


class HandleBackend:
    """The Verifier deployment as a Backend.

    One long streaming call per request: Serve then counts the request as ongoing at its replica,
    drains it, cancels it with us, and tells us when the replica dies.
    """

    def __init__(self, verifier: DeploymentHandle[Any]) -> None:
        self._verifier = verifier
        # By value: a verdict is small, and one through the object store takes three times as long.
        self._streaming = verifier.options(stream=True, _by_reference=False)

    async def generate(self, request: Request) -> AsyncGenerator[Verdict, None]:
        """See Backend."""
        is_ended = False
        with _own_errors():
            response = cast("_VerdictStream", self._streaming.generate.remote(request))
            try:
                async for item in response:
                    if isinstance(item, Refusal):
                        is_ended = True
                        raise item
                    is_ended = item.finish_reason is not None
                    yield item
            finally:
                if not is_ended:
                    response.cancel()  # frees the slot

    async def health(self) -> Health:
        """See Backend."""
        with _own_errors():
            return cast("Health", await self._verifier.health.remote())


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raises what the replica raised, without Ray's wrapping; lost replicas as unavailable."""
    try:
        yield
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, EngineError):
            raise BackendUnavailableError(str(cause)) from None
        raise cause from None
    except EngineError as error:
        raise BackendUnavailableError(str(error)) from None
    except BackPressureError as error:
        raise CapacityError(error.message) from None
    except (RayActorError, RayServeException) as error:
        raise BackendUnavailableError(
            "The replica that decoded this request was lost. Send the request again."
        ) from error


@serve.ingress()
class Router:
    """Checks requests, turns text into tokens and back, streams. Keeps no state of its own."""

    def __init__(
        self,
        verifier: DeploymentHandle[Any],
        facts: ModelFacts,
        target_folder: str,
        settings: HttpSettings,
    ) -> None:
        """Reads the tokenizer. Raises CheckpointError."""
        self._backend: Backend = HandleBackend(verifier)
        self._facts = facts
        self._tokenizer = ApiTokenizer.load(Path(target_folder))
        self._settings = settings

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve once the replica is constructed."""
        return create_app(self._backend, self._facts, self._tokenizer, self._settings)
