"""LiLiCorr under training."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from dcoco_core.correctors.checkpoint import Belonging
from dcoco_core.correctors.lilicorr.checkpoint import project_tokens, save_lilicorr, shape_problem
from dcoco_core.correctors.lilicorr.corrector import LiLiCorrCorrector, lattice_factors
from dcoco_core.correctors.lilicorr.head import LiLiCorr, LiLiCorrConfig
from dcoco_core.correctors.options import with_design
from dcoco_core.correctors.trainable import TrainingSource
from dcoco_core.errors import ConfigError
from dcoco_core.types import Lattice


def new_lilicorr(source: TrainingSource) -> TrainableLiLiCorr:
    """An untrained head for blocks of up to source.max_positions.

    It starts with tokens of unit size: raw rows of an embedding can be so small that a projection
    of the usual scale leaves nothing of them beside the drafter's state.
    """
    fixed = {
        "hidden_size": source.embedding.shape[1],
        "block_size": source.max_positions + 1,
        "lilicorr_candidate_topk": source.num_candidates,
    }
    config = with_design(LiLiCorrConfig, fixed, source.design)
    problem = shape_problem(config)
    if problem is not None:
        raise ConfigError(f"design: {problem}")
    module = LiLiCorr(config, source.dropout)
    token_proj = module.lilicorr.token_proj
    if isinstance(token_proj, nn.Linear):
        with torch.no_grad():
            token_proj.weight /= float(source.embedding.float().square().mean().sqrt())
    return TrainableLiLiCorr(module.to(source.embedding.device), source.embedding)


class TrainableLiLiCorr:
    """Implements TrainableCorrector on a LiLiCorr module.

    Args:
        module: what is trained.
        embedding: [V, H] of the target, not trained.
    """

    def __init__(self, module: LiLiCorr, embedding: torch.Tensor) -> None:
        self._module = module
        self._embedding = embedding

    @property
    def module(self) -> nn.Module:
        """The head under its prefix."""
        return self._module

    def scores(
        self,
        lattice: Lattice,
        gold_ids: torch.Tensor,
        rows: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        """See TrainableCorrector. The lattice is encoded whole, whichever places are asked for."""
        head = self._module.lilicorr
        distinct, places = lattice.candidate_ids.unique(return_inverse=True)
        tokens = F.embedding(places, head.token_states(self._embedding[distinct]))
        factors = lattice_factors(head, tokens, lattice)
        # Where gold is no candidate, any rank will do: nothing behind it is asked for.
        gold_ranks = (lattice.candidate_ids == gold_ids[..., None]).int().argmax(dim=-1)
        before = (positions - 1).clamp(min=0)
        left = factors.outgoing[rows, before, gold_ranks[rows, before]]
        left = torch.where((positions == 0)[:, None], factors.start[rows], left)
        pairs = torch.einsum("pf,pkf->pk", left, factors.incoming[rows, positions])
        return head.config.lilicorr_logit_scale * pairs

    def inference(self) -> LiLiCorrCorrector:
        """See TrainableCorrector."""
        head = copy.deepcopy(self._module.lilicorr).eval()
        return LiLiCorrCorrector(head, project_tokens(head, self._embedding))

    def save(self, folder: Path, belonging: Belonging) -> None:
        """See TrainableCorrector."""
        save_lilicorr(folder, self._module, belonging)
