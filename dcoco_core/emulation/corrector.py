"""The emulated corrector: drafts of a known acceptance, in the time a profile says."""

from __future__ import annotations

import numpy as np

from dcoco_core.arrays import as_tensor
from dcoco_core.emulation.acceptance import AcceptanceSource
from dcoco_core.emulation.device import Device
from dcoco_core.emulation.proposals import proposals
from dcoco_core.emulation.tape import AnswerTape
from dcoco_core.planning.costs import StageCost
from dcoco_core.types import Draft, Lattice


class EmulatedCorrector:
    """Implements the Corrector protocol. Its drafts are deterministic.

    Args:
        name: whose acceptance it has.
        tape: what the target says.
        acceptance: how much of a draft is right.
        cost: of a batch, by its rows and proposals.
        device: what a batch keeps busy; the drafter's where it runs there.
    """

    def __init__(
        self,
        name: str,
        tape: AnswerTape,
        acceptance: AcceptanceSource,
        cost: StageCost,
        device: Device,
    ) -> None:
        acceptance.of(name)  # refuses a source without it
        self._name, self._tape, self._acceptance = name, tape, acceptance
        self._cost, self._device = cost, device

    @property
    def num_candidates(self) -> int:
        """K: the draft and an alternative."""
        return 2

    def correct(self, lattice: Lattice) -> Draft:
        """Keeps the headers and gaps; a row without proposals stays one."""
        asked_at = self._device.now()
        num_rows, num_places = lattice.candidate_ids.shape[:2]
        token_ids = np.zeros((num_rows, num_places), dtype=np.int64)
        for row, header in enumerate(lattice.headers):
            tokens = proposals(header, self._name, self._tape, self._acceptance)
            token_ids[row, : len(tokens)] = tokens
        num_drafted = sum(header.num_draft_tokens > 0 for header in lattice.headers)
        self._device.work(self._cost.seconds(num_drafted, num_drafted * num_places), asked_at)
        return Draft(lattice.headers, as_tensor(token_ids), gaps=lattice.gaps)
