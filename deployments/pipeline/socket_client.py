"""The sending end of the data plane: one persistent connection to one replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from deployments.pipeline.addresses import Address, ApplicationKey, secure_client
from deployments.pipeline.envelope import Envelope
from deployments.pipeline.polled_socket import PolledSocket
from deployments.pipeline.socket_server import CALL_ID_BYTES, HIGH_WATER_MARK, OK
from deployments.pipeline.wire import MAX_MESSAGE_BYTES, WireError, pack, unpack

logger = logging.getLogger("ray.serve")

_MAX_OPEN_CALLS = HIGH_WATER_MARK // 2
# A peer that is lost without a word (its node, say) is noticed within the sum of both.
_HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS = 1000, 3000
_RECONNECT_MS, _LONGEST_RECONNECT_MS = 50, 1000

_REFUSALS = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_WATCHED = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | _REFUSALS


class RemoteError(Exception):
    """What the other end raised, as text."""


@dataclass(slots=True)
class ClientCounts:
    """Totals since the start."""

    sent: int = 0
    received: int = 0
    malformed: int = 0
    late: int = 0  # answers to calls that nobody waits for any more


class SocketClient:
    """Calls one replica. Constructed inside a running event loop.

    A connection that breaks fails the calls that are open, at once, and is made again in the
    background; how long a call may take is for the caller to say (asyncio.timeout).
    """

    def __init__(self, address: Address, key: ApplicationKey) -> None:
        self.counts = ClientCounts()
        self._address = address
        self._is_up = asyncio.Event()
        self._ids = count()
        self._open: dict[bytes, asyncio.Future[Envelope]] = {}
        self._context = zmq.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.linger = 0
        self._dealer.sndhwm = self._dealer.rcvhwm = HIGH_WATER_MARK
        self._dealer.maxmsgsize = MAX_MESSAGE_BYTES
        self._dealer.immediate = 1  # nothing queues for a peer that is not there
        self._dealer.reconnect_ivl = _RECONNECT_MS
        self._dealer.reconnect_ivl_max = _LONGEST_RECONNECT_MS
        self._dealer.heartbeat_ivl = _HEARTBEAT_MS
        self._dealer.heartbeat_timeout = _HEARTBEAT_TIMEOUT_MS
        secure_client(self._dealer, key, address)
        self._monitor = PolledSocket(self._dealer.get_monitor_socket(_WATCHED), self._watch)
        self._socket = PolledSocket(self._dealer, self._take)
        self._dealer.connect(address.url)

    @property
    def is_connected(self) -> bool:
        """Whether the peer is there and has admitted us."""
        return self._is_up.is_set()

    async def call(self, envelope: Envelope) -> Envelope:
        """What the peer answers; waits for the connection, and for ever.

        Raises:
            ConnectionError: the connection broke, was refused, or has too many calls open.
            RemoteError: the peer could not answer.
            WireError: the message is too large, or the answer is malformed.
        """
        frames = pack(envelope)
        if len(self._open) >= _MAX_OPEN_CALLS:
            raise ConnectionError(f"{len(self._open)} calls to {self._address.url} are open")
        call_id = next(self._ids).to_bytes(CALL_ID_BYTES, "big")
        future: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self._open[call_id] = future
        try:
            if not self.is_connected:
                await self._connected(future)
            try:
                self._socket.send([call_id, *frames])
            except zmq.ZMQError as error:
                raise ConnectionError(f"cannot send to {self._address.url}: {error}") from None
            self.counts.sent += 1
            return await future
        finally:
            del self._open[call_id]
            future.cancel()

    async def close(self) -> None:
        """Fails open calls and closes the connection."""
        self._fail("the connection was closed")
        self._dealer.disable_monitor()
        self._monitor.close()
        self._socket.close()
        self._context.term()

    async def _connected(self, future: asyncio.Future[Envelope]) -> None:
        """Waits until there is a connection, or the call has failed for want of one."""
        waiting = asyncio.ensure_future(self._is_up.wait())
        either: list[asyncio.Future[Any]] = [waiting, future]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if future.done():
            future.result()

    def _take(self, frames: Sequence[zmq.Frame]) -> None:
        self.counts.received += 1
        future = self._open.get(frames[0].bytes)
        if future is None or future.done():
            self.counts.late += 1
            return
        try:
            if len(frames) < 3:
                raise WireError(f"an answer of {len(frames)} frames")
            if frames[1].bytes == OK:
                future.set_result(unpack([frame.buffer for frame in frames[2:]]))
            else:
                future.set_exception(RemoteError(frames[2].bytes.decode(errors="replace")))
        except WireError as error:
            self.counts.malformed += 1
            logger.warning("dropped an answer: %s", error)
            future.set_exception(error)

    def _watch(self, frames: Sequence[zmq.Frame]) -> None:
        event = parse_monitor_message([frame.bytes for frame in frames])["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._is_up.set()
        elif event & _REFUSALS:
            self._fail("the connection was refused: not the same application's key")
        else:
            self._is_up.clear()
            self._fail("the connection broke")

    def _fail(self, reason: str) -> None:
        for future in self._open.values():
            if not future.done():
                future.set_exception(ConnectionError(f"{self._address.url}: {reason}"))
