"""DFlash2's candidate selector under training."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn

from dcoco_core.correctors.checkpoint import Belonging
from dcoco_core.correctors.dflash2.checkpoint import save_selector
from dcoco_core.correctors.dflash2.corrector import SelectorCorrector
from dcoco_core.correctors.dflash2.selector import CandidateSelector, SelectorConfig
from dcoco_core.correctors.options import with_design
from dcoco_core.correctors.pair_scores import left_ids
from dcoco_core.correctors.trainable import TrainingSource
from dcoco_core.types import Lattice


def new_selector(source: TrainingSource) -> TrainableSelector:
    """An untrained selector, its codebooks indexed by the drafter's vocabulary."""
    vocab_size, hidden_size = source.embedding.shape
    fixed = {
        "hidden_size": hidden_size,
        "vocab_size": vocab_size,
        "draft_vocab_size": vocab_size if source.vocab_ids is None else len(source.vocab_ids),
        "selector_top_k": source.num_candidates,
    }
    config = with_design(SelectorConfig, fixed, source.design)
    selector = CandidateSelector(config, source.vocab_ids, source.dropout)
    return TrainableSelector(selector.to(source.embedding.device))


class TrainableSelector:
    """Implements TrainableCorrector on a CandidateSelector."""

    def __init__(self, selector: CandidateSelector) -> None:
        self._selector = selector
        device = selector.candidate_selector.hidden_projection.weight.device
        self._code_rows = selector.code_rows().to(device)

    @property
    def module(self) -> nn.Module:
        """The selector."""
        return self._selector

    def scores(
        self,
        lattice: Lattice,
        gold_ids: torch.Tensor,
        rows: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        """See TrainableCorrector."""
        left_rows = self._code_rows[left_ids(lattice, gold_ids)[rows, positions]]
        code_rows = self._code_rows[lattice.candidate_ids[rows, positions]]
        gated = self._selector.gated(left_rows, lattice.hidden[rows, positions])
        pairs = torch.einsum("pf,pkf->pk", gated, self._selector.successors(code_rows))
        return lattice.candidate_logits[rows, positions] + pairs

    def inference(self) -> SelectorCorrector:
        """See TrainableCorrector."""
        return SelectorCorrector(copy.deepcopy(self._selector).eval())

    def save(self, folder: Path, belonging: Belonging) -> None:
        """See TrainableCorrector."""
        save_selector(folder, self._selector, belonging)
