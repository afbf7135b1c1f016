"""A connection to some replica of a deployment, found through Serve and kept.

Serve's handle is asked for an address when there is no connection, so that a replaced replica is
found again by the same check that finds a stage that has come back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from deployments.pipeline.addresses import ApplicationKey
from deployments.pipeline.envelope import PING, Envelope
from deployments.pipeline.socket_client import SocketClient

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

# A replica that is connected but answers no ping is left for another one.
_MAX_MISSED_PINGS = 2


class SocketLink:
    """Calls the replica it is connected to, until that one is lost.

    Args:
        stage: a deployment with the method `socket_address(node_id)`.
        key: of the application.
        node_id: Ray's id of the node that this process runs on.
    """

    def __init__(self, stage: DeploymentHandle[Any], key: ApplicationKey, node_id: str) -> None:
        self._stage = stage.options(_by_reference=False)
        self._key = key
        self._node_id = node_id
        self._client: SocketClient | None = None
        self._num_missed = 0
        self._checking = asyncio.Lock()

    @property
    def num_sent(self) -> int:
        """Messages sent over the present connection."""
        return 0 if self._client is None else self._client.counts.sent

    async def call(self, envelope: Envelope) -> Envelope:
        """See SocketClient.call. Raises ConnectionError while no replica is connected."""
        if self._client is None or not self._client.is_connected:
            raise ConnectionError("no replica is connected")
        return await self._client.call(envelope)

    async def check(self) -> None:
        """Connects if need be, and asks for a sign of life. Raises, or waits, while there is none.

        Calls one after the other: two at once must not connect twice.
        """
        async with self._checking:
            client = self._client
            is_lost = client is None or not client.is_connected
            if client is None or is_lost or self._num_missed >= _MAX_MISSED_PINGS:
                await self.close()
                address = await self._stage.socket_address.remote(self._node_id)
                client = self._client = SocketClient(address, self._key)
                self._num_missed = 0
            self._num_missed += 1
            await client.call(PING)
            self._num_missed = 0

    async def close(self) -> None:
        """Closes the connection; `check` makes another one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
