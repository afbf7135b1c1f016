"""DCOCO under training."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from dcoco_core.correctors.checkpoint import Belonging
from dcoco_core.correctors.dcoco.checkpoint import project_tokens, save_dcoco
from dcoco_core.correctors.dcoco.corrector import DCOCOCorrector
from dcoco_core.correctors.dcoco.scorer import PairScorer, ScorerConfig
from dcoco_core.correctors.options import with_design
from dcoco_core.correctors.pair_scores import left_ids
from dcoco_core.correctors.trainable import TrainingSource
from dcoco_core.types import Lattice


def new_dcoco(source: TrainingSource) -> TrainableDCOCO:
    """An untrained scorer of the sizes and the design asked for."""
    fixed = {"hidden_size": source.embedding.shape[1], "num_candidates": source.num_candidates}
    config = with_design(ScorerConfig, fixed, source.design)
    return TrainableDCOCO(source.embedding, source.dropout, config)


class TrainableDCOCO:
    """Implements TrainableCorrector on a PairScorer.

    Args:
        embedding: [V, H] of the target, not trained.
        dropout: on the scorer's inner layer.
        config: sizes and options; None takes the published ones.
    """

    def __init__(
        self, embedding: torch.Tensor, dropout: float = 0.0, config: ScorerConfig | None = None
    ) -> None:
        self._embedding = embedding
        self._scorer = PairScorer(config or ScorerConfig(embedding.shape[1]), dropout)
        self._scorer.to(embedding.device)

    @property
    def module(self) -> nn.Module:
        """The scorer."""
        return self._scorer

    def scores(
        self,
        lattice: Lattice,
        gold_ids: torch.Tensor,
        rows: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        """See TrainableCorrector.

        A place with its gold predecessor is a lattice of one position whose anchor is that
        predecessor and whose context is the state to its left, so the same features apply.
        """
        left_states, left_log_probs = _left_of_positions(lattice, gold_ids)
        token_ids = torch.cat(
            [
                left_ids(lattice, gold_ids)[rows, positions, None],
                lattice.candidate_ids[rows, positions],
            ],
            dim=1,
        )
        tokens = self._token_states(token_ids)
        log_probs = lattice.candidate_logits - lattice.log_normalizer[..., None]
        features = self._scorer.features(
            anchor=tokens[:, 0],
            candidates=tokens[:, None, 1:],
            log_probs=log_probs[rows, positions][:, None],
            hidden=lattice.hidden[rows, positions][:, None],
            last_context=left_states[rows, positions],
        )
        return self._scorer.pair_scores(
            features.anchor[:, None],
            left_log_probs[rows, positions, None],
            features.candidates[:, 0],
            features.successor[:, 0],
            features.log_probs[:, 0],
        )[:, 0]

    def _token_states(self, token_ids: torch.Tensor) -> torch.Tensor:
        """[P, K + 1] ids to [P, K + 1, D]. Every distinct token is projected once."""
        distinct, places = token_ids.unique(return_inverse=True)
        return F.embedding(places, self._scorer.token_states(self._embedding[distinct]))

    def inference(self) -> DCOCOCorrector:
        """See TrainableCorrector."""
        scorer = copy.deepcopy(self._scorer).eval()
        return DCOCOCorrector(scorer, project_tokens(scorer, self._embedding))

    def save(self, folder: Path, belonging: Belonging) -> None:
        """See TrainableCorrector."""
        save_dcoco(folder, self._scorer, belonging)


def _left_of_positions(
    lattice: Lattice, gold_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The state and the gold token's log-prob to the left of every position, [R, S, ...] each.

    Left of the first one are the anchor's context row and log-prob 0.
    """
    states = torch.cat([lattice.last_context[:, None], lattice.hidden[:, :-1]], dim=1)
    is_gold = lattice.candidate_ids == gold_ids[..., None]
    log_probs = lattice.candidate_logits - lattice.log_normalizer[..., None]
    gold_log_probs = (log_probs * is_gold).sum(dim=-1)
    zeros = torch.zeros_like(gold_log_probs[:, :1])
    return states, torch.cat([zeros, gold_log_probs[:, :-1]], dim=1)
