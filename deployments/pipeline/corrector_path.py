"""How a lattice gets to the corrector and comes back as a draft, whatever happens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dcoco_core.correctors.none import NoneCorrector
from deployments.pipeline.breaker import Breaker
from deployments.pipeline.envelope import Envelope, encode

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from dcoco_core.types import Lattice


class CorrectorHandlePath:
    """The Corrector deployment; the uncorrected top-1 path while it does not answer."""

    def __init__(self, corrector: DeploymentHandle[Any], deadline_s: float) -> None:
        self._corrector = corrector.options(_by_reference=False)
        self._breaker = Breaker("corrector", self.num_candidates, deadline_s)

    @property
    def is_available(self) -> bool:
        """Whether drafts are being corrected."""
        return self._breaker.is_available

    async def correct(self, lattice: Lattice) -> Envelope:
        """The draft as an envelope, since it only passes through here."""
        envelope = encode(lattice)
        draft = await self._breaker.call(lambda: self._corrector.correct.remote(envelope))
        return encode(NoneCorrector().correct(lattice)) if draft is None else draft

    async def num_candidates(self) -> int:
        """See Corrector. Waits for the deployment."""
        return int(await self._corrector.num_candidates.remote())
