"""DCOCO at inference: lattice features, scores by one of two paths, the prefix-first walk."""

from __future__ import annotations

import torch

from dcoco_core.correctors.dcoco.scorer import LatticeFeatures, PairScorer
from dcoco_core.correctors.pair_scores import PairScores, anchor_ids, on_device
from dcoco_core.correctors.prefix_walk import ScoresAfter, first_candidates, prefix_walk
from dcoco_core.types import Draft, Lattice


class DCOCOCorrector:
    """Implements the Corrector protocol on a PairScorer.

    Args:
        scorer: its device and dtype are where and how correction is computed.
        token_states: [V, D], scorer.token_states of the target's whole embedding.
        all_pairs: which path computes the scores; None chooses by device. Both give the same
            draft: all S * K * K pairs in one batched pass, after which the walk is S gathers; or
            lazily, the K candidates after each chosen predecessor.
    """

    def __init__(
        self, scorer: PairScorer, token_states: torch.Tensor, all_pairs: bool | None = None
    ) -> None:
        self._scorer = scorer
        self._token_states = token_states
        self._all_pairs = all_pairs

    @property
    def num_candidates(self) -> int:
        """K of the checkpoint."""
        return self._scorer.config.num_candidates

    @torch.inference_mode()
    def correct(self, lattice: Lattice) -> Draft:
        """See protocols.Corrector. The draft is on the corrector's device."""
        lattice = on_device(
            first_candidates(lattice, self.num_candidates), self._token_states.device
        )
        if lattice.candidate_ids.shape[:2].numel() == 0:
            return Draft(lattice.headers, lattice.candidate_ids[..., 0], gaps=lattice.gaps)
        all_pairs = self._all_pairs
        if all_pairs is None:
            all_pairs = prefers_all_pairs(lattice.candidate_ids.device)
        if all_pairs:
            return prefix_walk(lattice, self.pair_scores(lattice).after)
        return prefix_walk(lattice, self._lazy_scores(self._features(lattice)))

    def pair_scores(self, lattice: Lattice) -> PairScores:
        """All scores of a lattice on this device, in one batched pass."""
        features = self._features(lattice)
        num_rows, num_positions, num_candidates, _ = features.candidates.shape
        pairs = self._scorer.pair_scores(
            features.candidates[:, :-1].flatten(0, 1),
            features.log_probs[:, :-1].flatten(0, 1),
            features.candidates[:, 1:].flatten(0, 1),
            features.successor[:, 1:].flatten(0, 1),
            features.log_probs[:, 1:].flatten(0, 1),
        ).view(num_rows, num_positions - 1, num_candidates, num_candidates)
        return PairScores(self._first_scores(features), pairs)

    def _features(self, lattice: Lattice) -> LatticeFeatures:
        return self._scorer.features(
            anchor=self._token_states[anchor_ids(lattice)],
            candidates=self._token_states[lattice.candidate_ids],
            log_probs=lattice.candidate_logits - lattice.log_normalizer[..., None],
            hidden=lattice.hidden,
            last_context=lattice.last_context,
        )

    def _lazy_scores(self, features: LatticeFeatures) -> ScoresAfter:
        rows = torch.arange(features.anchor.shape[0], device=features.anchor.device)

        def scores_after(position: int, rank: torch.Tensor) -> torch.Tensor:
            if position == 0:
                return self._first_scores(features)
            previous = features.candidates[rows, position - 1, rank]
            return self._scorer.pair_scores(
                previous[:, None],
                features.log_probs[rows, position - 1, rank][:, None],
                features.candidates[:, position],
                features.successor[:, position],
                features.log_probs[:, position],
            )[:, 0]

        return scores_after

    def _first_scores(self, features: LatticeFeatures) -> torch.Tensor:
        """[R, K] scores of the first position, after the anchor."""
        return self._scorer.pair_scores(
            features.anchor[:, None],
            torch.zeros_like(features.log_probs[:, 0, :1]),
            features.candidates[:, 0],
            features.successor[:, 0],
            features.log_probs[:, 0],
        )[:, 0]


def prefers_all_pairs(device: torch.device) -> bool:
    """Whether one batched pass over all pairs beats scoring after each chosen predecessor.

    All pairs cost K times the arithmetic in an S-th of the kernels. A CPU is bound by arithmetic
    at every batch size (measured at 1 to 32 rows), an accelerator by launches.
    """
    return device.type != "cpu"
