"""Drafter and corrector of `make bench-transport`: the real transports, hardly any computing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from dcoco_core.correctors.none import NoneCorrector
from dcoco_core.types import DraftRequest, Lattice
from deployments.pipeline.addresses import Address, ApplicationKey, Node
from deployments.pipeline.corrector_path import CorrectorPath
from deployments.pipeline.envelope import (
    Envelope,
    decode_draft_request,
    decode_lattice,
    decode_round,
    encode,
)
from deployments.pipeline.socket_link import SocketLink
from deployments.pipeline.socket_server import SocketServer

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

HIDDEN = 2880
NUM_POSITIONS, _NUM_CANDIDATES = 16, 16
FINGERPRINT = "bench"
_DEADLINE_S = 60.0


class FixedDrafter:
    """Implements Drafter: always the same lattice."""

    def draft(self, request: DraftRequest) -> Lattice:
        """See Drafter."""
        num_rows = len(request.headers)
        block = (num_rows, NUM_POSITIONS)
        return Lattice(
            request.headers,
            candidate_ids=torch.zeros((*block, _NUM_CANDIDATES), dtype=torch.int64),
            candidate_logits=torch.zeros((*block, _NUM_CANDIDATES)),
            log_normalizer=torch.zeros(block),
            hidden=torch.zeros((*block, HIDDEN)),
            last_context=torch.zeros((num_rows, HIDDEN)),
        )

    def release(self, request_ids: Iterable[str]) -> None:
        """See Drafter."""


class BenchCorrector:
    """Where the Corrector stands."""

    def __init__(self, key: ApplicationKey, node: Node | None = None) -> None:
        self._node = node or Node.this()
        self._server: SocketServer | None = None
        self._key = key

    async def correct(self, envelope: Envelope) -> Envelope:
        """A lattice to its top candidates."""
        return encode(NoneCorrector().correct(decode_lattice(envelope)))

    async def num_candidates(self) -> int:
        """See Corrector."""
        return _NUM_CANDIDATES

    async def socket_address(self, node_id: str) -> Address:
        """See Corrector."""
        if self._server is None:
            self._server = SocketServer(self.correct, self._key, self._node)
        return self._server.address(node_id)

    async def num_sent(self) -> int:
        """Socket messages sent so far."""
        return 0 if self._server is None else self._server.counts.sent

    async def close(self) -> None:
        """Closes its sockets."""
        if self._server is not None:
            await self._server.close()


class BenchDrafter:
    """Where the Drafter stands; sends lattices on the way that requests came."""

    def __init__(
        self, corrector: DeploymentHandle[Any], key: ApplicationKey, node: Node | None = None
    ) -> None:
        self._node = node or Node.this()
        self._key = key
        self._link = SocketLink(corrector, key, self._node.node_id)
        self._by_handle = CorrectorPath(corrector, _DEADLINE_S)
        self._by_socket = CorrectorPath(corrector, _DEADLINE_S, self._link)
        self._server: SocketServer | None = None

    async def echo(self, envelope: Envelope) -> Envelope:
        """A tensor there and back."""
        return encode(decode_round(envelope))

    async def draft(self, envelope: Envelope) -> Envelope:
        """A draft request to a draft."""
        return await self._by_handle.correct(FixedDrafter().draft(decode_draft_request(envelope)))

    async def fingerprint(self) -> str:
        """See Drafter."""
        return FINGERPRINT

    async def health(self) -> dict[str, str]:
        """See Drafter."""
        return {"drafter": "ready"}

    async def socket_address(self, node_id: str) -> Address:
        """See Drafter."""
        if self._server is None:
            await self._by_socket.check()
            self._server = SocketServer(self._answer, self._key, self._node)
        return self._server.address(node_id)

    async def num_sent(self) -> int:
        """Socket messages sent so far, to both sides."""
        assert self._server is not None
        return self._server.counts.sent + self._link.num_sent

    async def close(self) -> None:
        """Closes its sockets."""
        await self._link.close()
        if self._server is not None:
            await self._server.close()

    async def _answer(self, envelope: Envelope) -> Envelope:
        if envelope.kind == "round":
            return await self.echo(envelope)
        return await self._by_socket.correct(FixedDrafter().draft(decode_draft_request(envelope)))
