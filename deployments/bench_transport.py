"""`make bench-transport`: what a hop costs by socket, by Serve handle and inside one process.

Three small deployments stand where verifier, drafter and corrector do and use the real transports;
they compute next to nothing. The transports take turns, in an order that rotates, and a figure is
the median over the repeats. Prints a table, then one line of JSON; details go to
runs/bench-transport.json.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import ray
import torch
import typer
from ray import serve
from rich.console import Console
from rich.table import Table

from dcoco_core.correctors.none import NoneCorrector
from dcoco_core.provenance import describe_run
from dcoco_core.types import DraftRequest, Round, RowHeader, SamplingParams
from deployments.bench_stages import (
    FINGERPRINT,
    HIDDEN,
    NUM_POSITIONS,
    BenchCorrector,
    BenchDrafter,
    FixedDrafter,
)
from deployments.pipeline.addresses import ApplicationKey, Node
from deployments.pipeline.envelope import decode_round, encode
from deployments.pipeline.socket_link import SocketLink
from deployments.pipeline.socket_path import SocketPath
from deployments.pipeline.transport import DraftPath, HandlePath, InProcessPath
from deployments.pipeline.wire import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

# [rows, hidden] in float32; the larger two are one block and 32 blocks of 16 tokens.
_SHAPES = {"1KB": (1, 256), "184KB": (16, HIDDEN), "5.9MB": (512, HIDDEN)}
_ROWS = (1, 32)
_NUM_CONTEXT_ROWS = 5
_CALLS_IN_A_ROW = 10

Times = dict[str, list[float]]  # seconds of single calls, by transport


def _header(row: int, num_context_rows: int) -> RowHeader:
    start = 100 + num_context_rows
    sampling = SamplingParams()
    return RowHeader(
        f"row {row}", 0, start, 1, NUM_POSITIONS, sampling, "none", 100, num_context_rows
    )


def _payload(shape: tuple[int, int]) -> Round:
    return Round((), DraftRequest((_header(0, shape[0]),), torch.rand(shape)))


def _request(num_rows: int) -> DraftRequest:
    headers = tuple(_header(row, _NUM_CONTEXT_ROWS) for row in range(num_rows))
    return DraftRequest(headers, torch.rand(num_rows * _NUM_CONTEXT_ROWS, HIDDEN))


class BenchVerifier:
    """Where the Verifier stands: sends, and looks at the clock."""

    def __init__(
        self,
        drafter: DeploymentHandle[Any],
        corrector: DeploymentHandle[Any],
        key: ApplicationKey,
        node: Node | None = None,
    ) -> None:
        self._stages = (drafter, corrector)
        self._drafter = drafter.options(_by_reference=False)
        self._link = SocketLink(drafter, key, (node or Node.this()).node_id)
        self._by_handle = HandlePath(drafter, FINGERPRINT)
        self._by_socket = SocketPath(self._by_handle, self._link)
        self._in_process = InProcessPath(FixedDrafter(), NoneCorrector())

    async def hops(self, size: str, num_calls: int, turn: int) -> Times:
        """Round trips of one tensor."""
        message = _payload(_SHAPES[size])

        async def by_socket() -> object:
            return decode_round(await self._link.call(encode(message)))

        async def by_handle() -> object:
            return decode_round(await self._drafter.echo.remote(encode(message)))

        async def in_process() -> object:
            return await asyncio.get_running_loop().run_in_executor(None, lambda: message)

        await self._by_socket.check()
        return await _timed(
            {"socket": by_socket, "handle": by_handle, "in-process": in_process}, num_calls, turn
        )

    async def rounds(self, num_rows: int, num_calls: int, turn: int) -> Times:
        """Rounds through drafter and corrector, without the verifier's own pass."""
        request = _request(num_rows)

        def through(path: DraftPath) -> Callable[[], Awaitable[object]]:
            return lambda: path.draft(request)

        await self._by_socket.check()
        ways = {
            "socket": through(self._by_socket),
            "handle": through(self._by_handle),
            "in-process": through(self._in_process),
        }
        return await _timed(ways, num_calls, turn)

    async def messages_per_round(self, num_rows: int, num_rounds: int = 5) -> float:
        """Socket messages that all stages send, counted."""
        await self._by_socket.check()
        before = await self._num_sent()
        for _ in range(num_rounds):
            await self._by_socket.draft(_request(num_rows))
        return (await self._num_sent() - before) / num_rounds

    async def close(self) -> None:
        """Closes its connection."""
        await self._link.close()

    async def _num_sent(self) -> int:
        others = [int(await stage.num_sent.remote()) for stage in self._stages]
        return self._link.num_sent + sum(others)


async def _timed(
    ways: dict[str, Callable[[], Awaitable[object]]], num_calls: int, turn: int
) -> Times:
    """A few calls each in turns, so that whatever else the machine does meets all of them.

    Not one call each: a handle call leaves work on the event loop, which the next call would pay.
    """
    names = [*list(ways)[turn % len(ways) :], *list(ways)[: turn % len(ways)]]
    times: Times = {name: [] for name in names}
    for first in range(0, num_calls, _CALLS_IN_A_ROW):
        for name in names:
            for _ in range(min(_CALLS_IN_A_ROW, num_calls - first)):
                started = time.perf_counter()
                await ways[name]()
                times[name].append(time.perf_counter() - started)
    return times


def _percentile(times: Sequence[float], percent: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def _summary(repeats: Sequence[Times]) -> dict[str, dict[str, float]]:
    """Medians over the repeats of p50 and p99, in milliseconds, by transport."""
    return {
        name: {
            f"p{percent}_ms": 1e3
            * statistics.median(_percentile(times[name], percent) for times in repeats)
            for percent in (50, 99)
        }
        for name in ("socket", "handle", "in-process")
    }


def _application() -> Any:
    environment = {"RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(MAX_MESSAGE_BYTES)}
    options: dict[str, Any] = {
        "logging_config": {"enable_access_log": False},
        "ray_actor_options": {"num_cpus": 0.1, "runtime_env": {"env_vars": environment}},
    }
    key = ApplicationKey.create()
    corrector = serve.deployment(**options)(BenchCorrector).bind(key)
    drafter = serve.deployment(**options)(BenchDrafter).bind(corrector, key)
    return serve.deployment(**options)(BenchVerifier).bind(drafter, corrector, key)


def main(
    repeats: Annotated[int, typer.Option(min=1, help="How often everything is measured.")] = 5,
    calls: Annotated[int, typer.Option(min=2, help="Calls of each kind in a repeat.")] = 100,
) -> None:
    """Measures on this machine, in a Ray of its own."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(proxy_location="Disabled")
        verifier = serve.run(_application(), name="bench-transport", route_prefix=None)
        hops: dict[str, list[Times]] = {size: [] for size in _SHAPES}
        rounds: dict[str, list[Times]] = {str(rows): [] for rows in _ROWS}
        for turn in range(-1, repeats):  # the first is not counted: connections, caches
            for size in _SHAPES:
                times = verifier.hops.remote(size, calls, turn).result()
                hops[size] += [times] if turn >= 0 else []
            for rows in _ROWS:
                times = verifier.rounds.remote(rows, calls, turn).result()
                rounds[str(rows)] += [times] if turn >= 0 else []
        messages = {str(rows): verifier.messages_per_round.remote(rows).result() for rows in _ROWS}
    finally:
        serve.shutdown()
        ray.shutdown()
    _report(hops, rounds, messages)


def _report(
    hops: dict[str, list[Times]], rounds: dict[str, list[Times]], messages: dict[str, float]
) -> None:
    figures = {
        "round trip": {size: _summary(times) for size, times in hops.items()},
        "round": {f"{rows} rows": _summary(times) for rows, times in rounds.items()},
    }
    table = Table("", "", "transport", "p50 ms", "p99 ms")
    for kind, by_size in figures.items():
        for size, by_transport in by_size.items():
            for name, found in by_transport.items():
                values = [f"{found[key]:.2f}" for key in ("p50_ms", "p99_ms")]
                table.add_row(kind, size, name, *values)
    Console().print(table)
    ratios = {
        size: round(found["socket"]["p50_ms"] / found["handle"]["p50_ms"], 3)
        for size, found in figures["round trip"].items()
    }
    line = {"socket_over_handle": ratios, "messages_per_round": messages}
    path = Path("runs/bench-transport.json")
    path.parent.mkdir(exist_ok=True)
    details = {"run": describe_run(), **line, **figures}
    path.write_text(json.dumps(details, indent=2, default=str) + "\n")
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    typer.run(main)
