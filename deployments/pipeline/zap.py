"""Who may connect: libzmq asks inside the process, and this answers (ZAP, ZeroMQ RFC 27)."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Sequence

import zmq
from zmq.utils import z85

from deployments.pipeline.addresses import USER, ApplicationKey
from deployments.pipeline.polled_socket import PolledSocket

logger = logging.getLogger("ray.serve")

_VERSION = b"1.0"


class Doorkeeper:
    """Admits the processes of one application to the sockets of one context."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], key: ApplicationKey) -> None:
        self.num_refused = 0
        socket = context.socket(zmq.REP)
        socket.bind("inproc://zeromq.zap.01")  # the name is the protocol's
        self._socket = PolledSocket(socket, self._answer)
        self._accepted = {
            b"PLAIN": (USER.encode(), key.password.encode()),
            b"CURVE": (z85.decode(key.public),),
        }

    def close(self) -> None:
        """Closes its socket."""
        self._socket.close()

    def _answer(self, frames: Sequence[zmq.Frame]) -> None:
        _, request_id, _, peer, _, mechanism, *credentials = [frame.bytes for frame in frames]
        is_admitted = self._knows(mechanism, credentials)
        if not is_admitted:
            self.num_refused += 1
            logger.warning("refused a connection from %s: not of this application", peer)
        status, text = (b"200", b"OK") if is_admitted else (b"400", b"not of this application")
        self._socket.send([_VERSION, request_id, status, text, b"", b""])

    def _knows(self, mechanism: bytes, credentials: Sequence[bytes]) -> bool:
        accepted = self._accepted.get(mechanism, ())
        if not accepted or len(credentials) != len(accepted):
            return False
        # Compares all of it, so that the time taken says nothing.
        return hmac.compare_digest(b"\0".join(accepted), b"\0".join(credentials))
