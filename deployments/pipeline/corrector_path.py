"""How a lattice gets to the corrector and comes back as a draft, whatever happens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dcoco_core.correctors.none import NoneCorrector
from deployments.pipeline.breaker import Breaker
from deployments.pipeline.envelope import Envelope, encode

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from dcoco_core.types import Lattice
    from deployments.pipeline.socket_link import SocketLink


class CorrectorPath:
    """The Corrector deployment; the uncorrected top-1 path while it does not answer.

    Args:
        corrector: the deployment.
        deadline_s: longest wait for a corrected draft.
        link: a connection for the lattices; without one they go by handle.
    """

    def __init__(
        self,
        corrector: DeploymentHandle[Any],
        deadline_s: float,
        link: SocketLink | None = None,
    ) -> None:
        self._corrector = corrector.options(_by_reference=False)
        self._link = link
        self._breaker = Breaker("corrector", self.check, deadline_s)

    @property
    def is_available(self) -> bool:
        """Whether drafts are being corrected."""
        return self._breaker.is_available

    async def correct(self, lattice: Lattice) -> Envelope:
        """The draft as an envelope, since it only passes through here."""
        envelope = encode(lattice)
        draft = await self._breaker.call(lambda: self._send(envelope))
        return encode(NoneCorrector().correct(lattice)) if draft is None else draft

    async def check(self) -> int:
        """Connects, and returns K as Corrector has it. Waits for the deployment."""
        num_candidates = int(await self._corrector.num_candidates.remote())
        if self._link is not None:
            await self._link.check()
        return num_candidates

    async def _send(self, envelope: Envelope) -> Envelope:
        if self._link is not None:
            return await self._link.call(envelope)
        answer: Envelope = await self._corrector.correct.remote(envelope)
        return answer
