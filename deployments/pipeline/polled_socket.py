"""A ZeroMQ socket on an asyncio loop, without a future per message.

pyzmq's own asyncio sockets make several futures and timers for every message, which is a third of
what a small message costs. Here messages go to a callback, and sending never waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import zmq

from deployments.pipeline.wire import Frame


class PolledSocket:
    """Hands every message that arrives to a callback, on the loop it was made in.

    Args:
        socket: owned from here on.
        on_message: gets the frames; must not raise.
    """

    def __init__(
        self, socket: zmq.Socket[bytes], on_message: Callable[[Sequence[zmq.Frame]], None]
    ) -> None:
        self._socket = socket
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._descriptor = socket.fileno()
        self._loop.add_reader(self._descriptor, self._drain)
        self._look_again()

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends, or raises zmq.ZMQError when that is not possible at once."""
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        finally:
            self._look_again()

    def close(self) -> None:
        """Closes the socket; no callback comes after that."""
        self._loop.remove_reader(self._descriptor)
        self._socket.close(linger=0)

    def _look_again(self) -> None:
        # The descriptor becomes readable once per change; connecting, binding and sending use that
        # up, and it comes again only after everything there is has been looked at.
        self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        while not self._socket.closed and int(self._socket.EVENTS) & zmq.POLLIN:
            self._on_message(self._socket.recv_multipart(zmq.NOBLOCK, copy=False))
