"""Who may talk to whom: the key of an application, and the addresses of its replicas.

Processes of one node meet on a Unix socket in Linux's abstract namespace, which leaves no file
behind however a process ends. The name cannot be guessed, and the application's password is asked
for besides; the kernel carries the bytes, so they are not encrypted: that would cost ten times what
sending them does. Between nodes everything is encrypted (CURVE): a client knows the public key of
the replica out of its address, and the replica admits the application's key and no other.
"""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass, field
from typing import Any

import zmq

USER = "application"


@dataclass(frozen=True, slots=True)
class ApplicationKey:
    """Made when an application is built; its replicas get it with their arguments."""

    password: str = field(repr=False)
    public: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def create(cls) -> ApplicationKey:
        """A fresh key. Raises RuntimeError where libzmq was built without CURVE."""
        if not zmq.has("curve"):
            raise RuntimeError("this libzmq has no CURVE: use transport 'handle'")
        public, secret = zmq.curve_keypair()
        return cls(secrets.token_hex(32), public, secret)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a replica listens; `server_key` is its CURVE key, None on a Unix socket."""

    url: str
    server_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster: Ray's id of it, and its own network address."""

    node_id: str
    host: str

    @classmethod
    def this(cls) -> Node:
        """The node that this replica runs on."""
        import ray

        return cls(ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address())


def local_url() -> str | None:
    """A fresh name for a Unix socket; None where sockets without a file do not exist."""
    return f"ipc://@dcoco-{secrets.token_hex(16)}" if sys.platform == "linux" else None


def secure_client(socket: zmq.Socket[Any], key: ApplicationKey, address: Address) -> None:
    """Sets up a socket that is to connect to `address`."""
    if address.server_key is None:
        socket.plain_username = USER.encode()
        socket.plain_password = key.password.encode()
    else:
        socket.curve_serverkey = address.server_key
        socket.curve_publickey = key.public
        socket.curve_secretkey = key.secret
