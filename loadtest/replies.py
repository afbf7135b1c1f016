"""An OpenAI server's reply, streamed or whole, as what a sample keeps of it.

While a stream is open its lines are only stamped; JSON is parsed after the last one, since a client
that parses between reads measures itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loadtest.samples import Status

DONE = b"data: [DONE]"


@dataclass(slots=True)
class Reply:
    """What a server answered; `chunk_s` and `end_s` count from `since`, a `time.perf_counter()`."""

    end_s: float = 0.0
    chunk_s: list[float] = field(default_factory=list)
    num_tokens: int = 0
    num_prompt_tokens: int = 0
    finish_reason: str | None = None
    status: Status = "broken"
    error: str | None = None
    speculation: dict[str, Any] | None = None


def read_stream(readline: Callable[[], bytes], since: float) -> Reply:
    """A streamed reply, read to [DONE]; a connection that ends earlier is `broken`."""
    stamped: list[tuple[float, bytes]] = []
    reply = Reply()
    done = False
    try:
        while not done and (line := readline()):
            stamped.append((time.perf_counter() - since, line))
            done = line.startswith(DONE)
    except OSError as error:
        reply.error = f"the stream ended early: {error}"
    reply.end_s = time.perf_counter() - since
    for arrived_s, line in stamped:
        if line.startswith(b"data: {"):
            _take(reply, line[len(b"data: ") :], arrived_s)
    if not done:
        reply.error = reply.error or "the stream ended before [DONE]"
    elif reply.error is None:
        _judge(reply)
    return reply


def read_whole(body: bytes, since: float) -> Reply:
    """A reply that came in one piece."""
    reply = Reply(end_s=time.perf_counter() - since)
    _take(reply, body, None)
    if reply.error is None:
        _judge(reply)
    return reply


def _take(reply: Reply, text: bytes, arrived_s: float | None) -> None:
    try:
        data = json.loads(text)
    except ValueError:
        reply.error = "an event that is not JSON"
        return
    if data.get("error"):
        reply.error = str(data["error"].get("message", data["error"]))
        return
    for choice in data.get("choices") or ():
        content = (choice.get("delta") or {}).get("content") or choice.get("text")
        if content and arrived_s is not None:
            reply.chunk_s.append(arrived_s)
        reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
    if usage := data.get("usage"):
        reply.num_tokens = usage["completion_tokens"]
        reply.num_prompt_tokens = usage["prompt_tokens"]
    if metrics := data.get("metrics"):
        reply.speculation = metrics.get("speculative_decoding")


def _judge(reply: Reply) -> None:
    """The status of a reply that arrived whole."""
    if reply.num_tokens == 0:
        reply.status, reply.error = "empty", "no completion tokens were counted"
    elif reply.finish_reason is None:
        reply.status, reply.error = "unfinished", "no finish_reason"
    else:
        reply.status = "ok"
