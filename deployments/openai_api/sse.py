"""Server-sent events, and handlers that end when their client hangs up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would collect events otherwise
}


class ClientGoneError(Exception):
    """The client closed the connection before its reply was ready."""


def event(data: dict[str, Any]) -> bytes:
    """One event that carries a JSON object."""
    return (
        b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )


async def unless_gone(request: HttpRequest, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled as soon as the client hangs up.

    The request's body must have been read. Raises ClientGoneError.
    """
    task = asyncio.create_task(_awaited(work))
    gone = asyncio.create_task(_disconnected(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        await _cancel(task, gone)


class EventStream(Response):
    """Sends `first` and then all of `rest`; closes `rest` at once when the client hangs up."""

    def __init__(
        self, first: bytes, rest: AsyncGenerator[bytes, None], headers: dict[str, str]
    ) -> None:
        super().__init__(status_code=200, headers={**HEADERS, **headers})
        del self.headers["content-length"]
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs as the ASGI application of one response."""
        del scope  # the same for every kind of connection
        sender = asyncio.create_task(self._send_all(send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((sender, gone), return_when=asyncio.FIRST_COMPLETED)
            if sender.done():
                sender.result()
        finally:
            await _cancel(sender, gone)
            await self._rest.aclose()  # when it had not been started by the sender

    async def _send_all(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async with aclosing(self._rest):
            async for chunk in self._rest:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancels and waits, so that every `finally` of the tasks has run on return."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen: it was raised through result(), or nobody is left to see it
