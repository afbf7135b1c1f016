"""Two ends of a socket in one process: answers, failures, strangers, and nothing left behind."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from deployments.pipeline.addresses import Address, ApplicationKey, secure_client
from deployments.pipeline.envelope import DONE, PING, Envelope, decode_draft, encode
from deployments.pipeline.socket_client import RemoteError, SocketClient
from deployments.pipeline.wire import Frame, pack
from tests.unit.deployments.pipeline import lattices
from tests.unit.deployments.pipeline.endpoints import (
    HERE,
    KEY,
    THERE,
    connected,
    is_second_best,
    never,
    second_best,
    serving,
)

NODES = pytest.mark.parametrize("node", [HERE, THERE], ids=["same node", "another node"])


@pytest.fixture(autouse=True)
async def nothing_hangs() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


@NODES
async def test_a_lattice_comes_back_as_a_draft(node: object) -> None:
    lattice = lattices.lattice()
    async with serving() as server:
        address = server.address("here" if node is HERE else "there")
        async with connected(address) as client:
            draft = decode_draft(await client.call(encode(lattice)))
            assert is_second_best(draft, lattice.candidate_ids)
            assert draft.headers == lattice.headers
            assert await client.call(PING) == DONE
        assert server.counts.received == server.counts.sent == 2


async def test_a_port_is_opened_only_for_another_node_and_only_once() -> None:
    async with serving() as server:
        local = server.address("here")
        assert local.url.startswith("ipc://@")
        assert local.server_key is None
        remote = server.address("there")
        assert remote.url.startswith("tcp://127.0.0.1:")
        assert server.address("here") == local
        assert server.address("elsewhere") == remote


async def test_answers_find_their_calls_out_of_order_and_among_many_clients() -> None:
    gates = {name: asyncio.Event() for name in "ab"}

    async def handle(envelope: Envelope) -> Envelope:
        (name,) = envelope.request_ids
        if name in gates:
            await gates[name].wait()
        return envelope

    def release(name: str) -> Envelope:
        return Envelope("release", (), {}, request_ids=(name,))

    async with serving(handle) as server:
        address = server.address("here")
        async with connected(address) as one, connected(address) as other:
            first = asyncio.create_task(one.call(release("a")))
            second = asyncio.create_task(one.call(release("b")))
            assert (await other.call(release("c"))).request_ids == ("c",)
            gates["b"].set()
            assert (await second).request_ids == ("b",)
            assert not first.done()
            gates["a"].set()
            assert (await first).request_ids == ("a",)


@NODES
async def test_a_stranger_is_refused_and_said_so(node: object) -> None:
    async with serving() as server:
        address = server.address("here" if node is HERE else "there")
        async with connected(address, ApplicationKey.create()) as stranger:
            with pytest.raises(ConnectionError, match="not the same application's key"):
                await stranger.call(PING)
        assert server.counts.received == 0
        assert server.num_refused >= 1
        async with connected(address) as client:
            assert await client.call(PING) == DONE


async def test_a_peer_without_any_key_gets_no_word_in() -> None:
    async with serving() as server:
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            for node_id in ("here", "there"):
                socket.connect(server.address(node_id).url)
                await socket.send_multipart([bytes(8), *pack(PING)])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(socket.recv_multipart(), 0.3)
        assert server.counts.received == 0


async def test_a_client_of_another_server_key_is_refused() -> None:
    async with serving() as server:
        address = server.address("there")
        forged = Address(address.url, zmq.curve_keypair()[0])
        async with connected(forged) as client:
            with pytest.raises((TimeoutError, ConnectionError)):
                await asyncio.wait_for(client.call(PING), 0.3)
        assert server.counts.received == 0


def test_keys_do_not_print_their_secrets() -> None:
    assert KEY.password not in repr(KEY)
    assert repr(KEY.secret) not in repr(KEY)


async def test_malformed_messages_are_dropped_and_counted_and_the_stage_goes_on() -> None:
    good = pack(encode(lattices.lattice()))
    async with serving() as server:
        address = server.address("here")
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            secure_client(socket, KEY, address)
            socket.connect(address.url)
            malformed: list[list[Frame]] = [
                [b""],
                [b"short", *good],
                [bytes(8)],
                [bytes(8), b"{not json"],
                [bytes(8), *good[:-1]],
                [bytes(8), *good[:-1], bytes(good[-1])[:-1]],
                [bytes(8), *good, b"more"],
            ]
            for frames in malformed:
                await socket.send_multipart(frames)
            await socket.send_multipart([bytes(8), *good])
            assert (await socket.recv_multipart())[:2] == [bytes(8), b"ok"]
        assert server.counts.malformed == len(malformed)


async def test_an_oversized_message_never_reaches_the_stage() -> None:
    lattice = encode(lattices.lattice())
    size = sum(map(len, pack(lattice)))
    async with (
        serving(max_message_bytes=size - 1) as server,
        connected(server.address("here")) as client,
    ):
        with pytest.raises(TimeoutError):  # small frames that are too much together
            await asyncio.wait_for(client.call(lattice), 0.2)
        assert server.counts.malformed == 1
        assert await client.call(PING) == DONE
    async with (
        serving(max_message_bytes=500) as server,
        connected(server.address("here")) as client,
    ):
        with pytest.raises(ConnectionError, match="broke"):  # one frame that is too large
            await client.call(lattice)
        assert await client.call(PING) == DONE


async def test_what_a_stage_raises_reaches_its_caller_and_the_next_call_works() -> None:
    async def handle(envelope: Envelope) -> Envelope:
        if envelope.kind == "release":
            raise ValueError("no such thing")
        return await second_best(envelope)

    async with serving(handle) as server, connected(server.address("here")) as client:
        with pytest.raises(RemoteError, match="no such thing"):
            await client.call(Envelope("release", (), {}))
        assert (await client.call(encode(lattices.lattice()))).kind == "draft"


async def test_a_late_answer_is_dropped_and_counted() -> None:
    gate = asyncio.Event()

    async def handle(envelope: Envelope) -> Envelope:
        await gate.wait()
        return await second_best(envelope)

    async with serving(handle) as server, connected(server.address("here")) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.call(encode(lattices.lattice())), 0.1)
        gate.set()
        assert (await client.call(encode(lattices.lattice()))).kind == "draft"
        assert client.counts.late == 1


async def test_open_calls_fail_at_once_when_the_peer_goes_and_it_is_found_again() -> None:
    url = f"ipc://@dcoco-test-{os.getpid()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deployments.pipeline.socket_server.local_url", lambda: url)
        async with serving(never) as server:
            client = SocketClient(server.address("here"), KEY)
            assert await client.call(PING) == DONE
            call = asyncio.create_task(client.call(encode(lattices.lattice())))
            await asyncio.sleep(0.05)
        with pytest.raises(ConnectionError, match="broke"):
            await asyncio.wait_for(call, 1)
        assert not client.is_connected
        async with serving() as server:
            server.address("here")
            lattice = lattices.lattice()
            draft = decode_draft(await asyncio.wait_for(client.call(encode(lattice)), 5))
            assert is_second_best(draft, lattice.candidate_ids)
        await client.close()


async def test_nobody_waits_in_an_endless_queue() -> None:
    async with serving(never) as server, connected(server.address("here")) as client:
        assert await client.call(PING) == DONE
        release = Envelope("release", (), {})
        calls = [asyncio.create_task(client.call(release)) for _ in range(128)]
        await asyncio.sleep(0)
        with pytest.raises(ConnectionError, match="128 calls"):
            await client.call(release)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


def held() -> dict[str, int]:
    """What this process holds of the system; a socket without a file lives in its descriptor."""
    gc.collect()
    return {
        "open files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }


async def test_closing_leaves_no_socket_thread_or_file() -> None:
    async def use() -> None:
        async with serving() as server:
            for node_id in ("here", "there"):
                async with connected(server.address(node_id)) as client:
                    assert await client.call(PING) == DONE

    await use()
    before = held()
    for _ in range(5):
        await use()
    assert held() == before
