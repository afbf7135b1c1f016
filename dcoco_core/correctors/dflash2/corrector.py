"""DFlash2's candidate selector at inference."""

from __future__ import annotations

import torch

from dcoco_core.correctors.dflash2.selector import CandidateSelector
from dcoco_core.correctors.pair_scores import PairScores, anchor_ids, correct_by_pairs
from dcoco_core.types import Draft, Lattice


class SelectorCorrector:
    """Implements the Corrector protocol on a CandidateSelector, whose device it computes on."""

    def __init__(self, selector: CandidateSelector) -> None:
        self._selector = selector
        self._device = selector.candidate_selector.hidden_projection.weight.device
        self._code_rows = selector.code_rows().to(self._device)

    @property
    def num_candidates(self) -> int:
        """K of the checkpoint."""
        return self._selector.config.selector_top_k

    @torch.inference_mode()
    def correct(self, lattice: Lattice) -> Draft:
        """See protocols.Corrector. The draft is on the corrector's device."""
        return correct_by_pairs(lattice, self.num_candidates, self._device, self.pair_scores)

    def pair_scores(self, lattice: Lattice) -> PairScores:
        """All scores from one batched product; cheap enough on a CPU to be done always."""
        anchors = self._code_rows[anchor_ids(lattice)]
        rows = self._code_rows[lattice.candidate_ids]  # [R, S, K]
        successors = self._selector.successors(rows)  # [R, S, K, r]
        first = self._selector.gated(anchors, lattice.hidden[:, 0])
        later = self._selector.gated(rows[:, :-1], lattice.hidden[:, 1:, None])
        logits = lattice.candidate_logits
        return PairScores(
            logits[:, 0] + torch.einsum("rf,rkf->rk", first, successors[:, 0]),
            logits[:, 1:, None] + later @ successors[:, 1:].transpose(-1, -2),
        )
