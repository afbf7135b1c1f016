"""The receiving end of the data plane: one replica answers the envelopes of many peers.

A call is [call id, header, tensors...]; its answer [call id, "ok", header, tensors...] or
[call id, "error", text]. What is malformed is dropped and counted; its sender gets no answer.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import zmq

from deployments.pipeline.addresses import Address, ApplicationKey, Node, local_url
from deployments.pipeline.envelope import DONE, Envelope
from deployments.pipeline.polled_socket import PolledSocket
from deployments.pipeline.wire import MAX_MESSAGE_BYTES, Frame, WireError, pack, unpack
from deployments.pipeline.zap import Doorkeeper

logger = logging.getLogger("ray.serve")

OK, ERROR = b"ok", b"error"
CALL_ID_BYTES = 8
# Messages that wait for one peer. A client has fewer calls open, so it is never reached.
HIGH_WATER_MARK = 256


@dataclass(slots=True)
class ServerCounts:
    """Totals since the start."""

    received: int = 0
    sent: int = 0
    malformed: int = 0
    undelivered: int = 0  # answers whose peer had gone


class SocketServer:
    """Answers envelopes with `handle`. Constructed inside a running event loop.

    Args:
        handle: an envelope to its answer; what it raises goes back to the caller as text.
        key: only holders of it may connect.
        node: where this process runs.
        max_message_bytes: larger messages are dropped.
    """

    def __init__(
        self,
        handle: Callable[[Envelope], Awaitable[Envelope]],
        key: ApplicationKey,
        node: Node,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.counts = ServerCounts()
        self._handle = handle
        self._node = node
        self._max_message_bytes = max_message_bytes
        self._context = zmq.Context()
        self._sockets: list[PolledSocket] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._doorkeeper = Doorkeeper(self._context, key)
        self._local: Address | None = None
        self._remote: Address | None = None

    @property
    def num_refused(self) -> int:
        """Connections that did not know the key."""
        return self._doorkeeper.num_refused

    def address(self, node_id: str) -> Address:
        """Where a process of that node finds this one. Listens on the network only when asked to.

        A server that no other node has asked for has no port.
        """
        if node_id == self._node.node_id and (url := local_url()) is not None:
            if self._local is None:
                self._local = Address(self._listen(self._socket(None), url))
            return self._local
        if self._remote is None:
            host = "127.0.0.1" if node_id == self._node.node_id else self._node.host
            public, secret = zmq.curve_keypair()
            socket = self._socket((public, secret))
            self._remote = Address(self._listen(socket, f"tcp://{host}:*"), public)
        return self._remote

    async def close(self) -> None:
        """Gives up open calls and closes every socket."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        self._doorkeeper.close()
        for socket in self._sockets:
            socket.close()
        self._sockets.clear()
        self._context.term()

    def _socket(self, curve_keys: tuple[bytes, bytes] | None) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = HIGH_WATER_MARK
        # libzmq itself hangs up on a peer whose frame is larger; unpack checks the whole message.
        socket.maxmsgsize = self._max_message_bytes
        socket.router_mandatory = 1  # an answer to a peer that has gone is an error, not lost
        socket.zap_domain = b"dcoco"
        if curve_keys is None:
            socket.plain_server = 1
        else:
            socket.curve_server = 1
            socket.curve_publickey, socket.curve_secretkey = curve_keys
        return socket

    def _listen(self, socket: zmq.Socket[bytes], url: str) -> str:
        socket.bind(url)
        listening = PolledSocket(socket, lambda frames: self._take(listening, frames))
        self._sockets.append(listening)
        return url if url.startswith("ipc:") else socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def _take(self, socket: PolledSocket, frames: Sequence[zmq.Frame]) -> None:
        self.counts.received += 1
        peer, *rest = frames
        try:
            if not rest or len(rest[0]) != CALL_ID_BYTES:
                raise WireError(f"no call id of {CALL_ID_BYTES} bytes")
            envelope = unpack([frame.buffer for frame in rest[1:]], self._max_message_bytes)
        except WireError as error:
            self.counts.malformed += 1
            logger.warning("dropped a message: %s", error)
            return
        # A context of its own: it must not count as part of the call that made this server.
        call = asyncio.create_task(
            self._answer(socket, peer.bytes, rest[0].bytes, envelope), context=contextvars.Context()
        )
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _answer(
        self, socket: PolledSocket, peer: bytes, call_id: bytes, envelope: Envelope
    ) -> None:
        answer: list[Frame]
        try:
            reply = DONE if envelope.kind == "ping" else await self._handle(envelope)
            answer = [OK, *pack(reply)]
        except Exception as error:
            logger.warning("a call failed: %r", error)
            answer = [ERROR, repr(error).encode()]
        try:
            socket.send([peer, call_id, *answer])
            self.counts.sent += 1
        except zmq.ZMQError as error:
            self.counts.undelivered += 1
            logger.debug("an answer could not be delivered: %s", error)
