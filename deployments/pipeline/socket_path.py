"""The way to the drafter by sockets: blocks by the data plane, everything rare by the handle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deployments.pipeline.envelope import Envelope, decode_draft, encode

if TYPE_CHECKING:
    from dcoco_core.types import Draft, DraftRequest
    from deployments.pipeline.socket_link import SocketLink
    from deployments.pipeline.transport import HandlePath


class SocketPath:
    """One Drafter replica behind a socket; implements DraftPath.

    The drafter keeps context rows, so all drafts and releases of this verifier go to one replica.

    Args:
        by_handle: what asks the deployment how it is, and which checkpoint it runs.
        link: the connection.
    """

    def __init__(self, by_handle: HandlePath, link: SocketLink) -> None:
        self._by_handle = by_handle
        self._link = link

    async def draft(self, request: DraftRequest) -> Draft:
        """See DraftPath."""
        return decode_draft(await self._link.call(encode(request)))

    async def release(self, request_ids: Sequence[str]) -> None:
        """See DraftPath."""
        await self._link.call(Envelope("release", (), {}, request_ids=tuple(request_ids)))

    async def check(self) -> dict[str, str]:
        """See DraftPath. Raises CheckpointError like HandlePath."""
        states = await self._by_handle.check()
        await self._link.check()
        return states
