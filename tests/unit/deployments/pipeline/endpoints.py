"""Both ends of a connection, closed at the end; and a deployment that says where it listens."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import torch

from dcoco_core.types import Draft
from deployments.pipeline.addresses import Address, ApplicationKey, Node
from deployments.pipeline.envelope import DONE, Envelope, decode_lattice, encode
from deployments.pipeline.socket_client import SocketClient
from deployments.pipeline.socket_server import SocketServer

KEY = ApplicationKey.create()
HERE, THERE = Node("here", "127.0.0.1"), Node("there", "127.0.0.1")

Handle = Callable[[Envelope], Awaitable[Envelope]]


async def second_best(envelope: Envelope) -> Envelope:
    """A corrector that always takes the second candidate."""
    if envelope.kind != "lattice":
        return DONE
    lattice = decode_lattice(envelope)
    return encode(Draft(lattice.headers, lattice.candidate_ids[..., 1], gaps=lattice.gaps))


async def never(envelope: Envelope) -> Envelope:
    await asyncio.Event().wait()
    raise AssertionError


def is_second_best(draft: Draft, candidate_ids: torch.Tensor) -> bool:
    return torch.equal(draft.token_ids, candidate_ids[..., 1])


@asynccontextmanager
async def serving(handle: Handle = second_best, **options: Any) -> AsyncIterator[SocketServer]:
    server = SocketServer(handle, KEY, HERE, **options)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def connected(address: Address, key: ApplicationKey = KEY) -> AsyncIterator[SocketClient]:
    client = SocketClient(address, key)
    try:
        yield client
    finally:
        await client.close()


class Stage:
    """A deployment as its handle shows it: one replica, which can be replaced."""

    def __init__(self, server: SocketServer) -> None:
        self.server = server
        self.num_asked = 0

    def options(self, *, _by_reference: bool) -> "Stage":
        assert _by_reference is False
        return self

    def __getattr__(self, name: str) -> Any:
        async def remote(*arguments: Any) -> Any:
            if name == "socket_address":
                self.num_asked += 1
                return self.server.address(*arguments)
            return {"fingerprint": "f1", "health": {"drafter": "ready"}, "num_candidates": 4}[name]

        return type("Method", (), {"remote": staticmethod(remote)})
