"""LiLiCorr at inference."""

from __future__ import annotations

import torch

from dcoco_core.correctors.lilicorr.head import Factors, LiLiCorrHead
from dcoco_core.correctors.pair_scores import PairScores, correct_by_pairs
from dcoco_core.types import Draft, Lattice


class LiLiCorrCorrector:
    """Implements the Corrector protocol on a LiLiCorrHead.

    Args:
        head: its device and dtype are where and how correction is computed.
        token_states: [V, d], head.token_states of the target's whole embedding.
    """

    def __init__(self, head: LiLiCorrHead, token_states: torch.Tensor) -> None:
        self._head = head
        self._token_states = token_states

    @property
    def num_candidates(self) -> int:
        """K of the checkpoint."""
        return self._head.config.lilicorr_candidate_topk

    @torch.inference_mode()
    def correct(self, lattice: Lattice) -> Draft:
        """See protocols.Corrector. The draft is on the corrector's device."""
        device = self._token_states.device
        return correct_by_pairs(lattice, self.num_candidates, device, self.pair_scores)

    def pair_scores(self, lattice: Lattice) -> PairScores:
        """All scores from one pass over the lattice and one batched product."""
        factors = lattice_factors(self._head, self._token_states[lattice.candidate_ids], lattice)
        scale = self._head.config.lilicorr_logit_scale
        first = torch.einsum("rf,rkf->rk", factors.start, factors.incoming[:, 0])
        pairs = factors.outgoing[:, :-1] @ factors.incoming[:, 1:].transpose(-1, -2)
        return PairScores(scale * first, scale * pairs)


def lattice_factors(head: LiLiCorrHead, tokens: torch.Tensor, lattice: Lattice) -> Factors:
    """The head's factors of a lattice whose candidates have token states [R, S, K, d]."""
    device = tokens.device
    # A row without proposals keeps one position, so that its attention has something to see.
    lengths = torch.tensor([max(h.num_draft_tokens, 1) for h in lattice.headers], device=device)
    positions = torch.arange(tokens.shape[1], device=device)
    factors: Factors = head(
        tokens,
        lattice.candidate_logits - lattice.log_normalizer[..., None],
        lattice.hidden,
        lattice.last_context,
        positions < lengths[:, None],
    )
    return factors
