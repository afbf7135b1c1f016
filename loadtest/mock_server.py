"""An OpenAI server with chosen timings: what the suite measures of it is known beforehand.

    python -m loadtest.mock_server --port 8100 --ttft-ms 200 --round-ms 25 --tokens-per-round 3

Each request gets its first chunk after `--ttft-ms` and one more every `--round-ms`, whatever the
number of clients. Events are due at times fixed from the request's arrival, so that a late one
does not delay those after it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

MODEL = "mock"


@dataclass(frozen=True, slots=True)
class Timings:
    """When a request's chunks are sent, and how many tokens each one carries."""

    ttft_s: float
    round_s: float
    tokens_per_round: int

    def counts(self, num_tokens: int) -> list[int]:
        """Tokens in each chunk of an answer of `num_tokens`; the last chunk takes what is left."""
        whole, rest = divmod(num_tokens, self.tokens_per_round)
        return [self.tokens_per_round] * whole + ([rest] if rest else [])


def application(timings: Timings) -> Starlette:
    """The routes the suite uses: the model list and chat completions."""

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def chat(request: Request) -> Response:
        arrived_s = asyncio.get_running_loop().time()
        body = await request.json()
        num_tokens = body.get("max_tokens", 16)
        events = _events(timings, num_tokens, arrived_s)
        if body.get("stream"):
            return StreamingResponse(events, media_type="text/event-stream")
        async for _event in events:
            pass
        message = {"role": "assistant", "content": " a" * num_tokens}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        return JSONResponse({"model": MODEL, "choices": [choice], **_account(timings, num_tokens)})

    routes = [
        Route("/v1/models", models),
        Route("/v1/chat/completions", chat, methods=["POST"]),
    ]
    return Starlette(routes=routes)


async def _events(timings: Timings, num_tokens: int, arrived_s: float) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    counts = timings.counts(num_tokens)
    for index, count in enumerate(counts):
        due_s = arrived_s + timings.ttft_s + index * timings.round_s
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        reason = "length" if index == len(counts) - 1 else None
        delta = {"content": " a" * count}
        yield _event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    yield _event({"choices": [], **_account(timings, num_tokens)})
    yield "data: [DONE]\n\n"


def _account(timings: Timings, num_tokens: int) -> dict[str, Any]:
    rounds = timings.counts(num_tokens)
    return {
        "usage": {"prompt_tokens": 1, "completion_tokens": num_tokens},
        "metrics": {
            "speculative_decoding": {"mean_acceptance_length": num_tokens / max(1, len(rounds))}
        },
    }


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def main(
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8100,
    ttft_ms: Annotated[float, typer.Option(min=0)] = 200,
    round_ms: Annotated[float, typer.Option(min=0)] = 25,
    tokens_per_round: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Serve on the loopback until interrupted."""
    timings = Timings(ttft_ms / 1e3, round_ms / 1e3, tokens_per_round)
    uvicorn.run(application(timings), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    typer.run(main)
