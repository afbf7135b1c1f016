"""Domino under training."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from dcoco_core.correctors.checkpoint import Belonging
from dcoco_core.correctors.domino.checkpoint import save_domino
from dcoco_core.correctors.domino.corrector import DominoCorrector
from dcoco_core.correctors.domino.head import DominoConfig, DominoHead
from dcoco_core.correctors.draft_vocabulary import draft_rows
from dcoco_core.correctors.options import with_design
from dcoco_core.correctors.pair_scores import left_ids
from dcoco_core.correctors.trainable import TrainingSource
from dcoco_core.types import Lattice


def new_domino(source: TrainingSource) -> TrainableDomino:
    """An untrained head of the sizes asked for, its output indexed by the draft vocabulary."""
    vocab_size, hidden_size = source.embedding.shape
    fixed = {
        "hidden_size": hidden_size,
        "vocab_size": vocab_size,
        "draft_vocab_size": vocab_size if source.vocab_ids is None else len(source.vocab_ids),
        "shift_label": source.shift_label,
        "num_candidates": source.num_candidates,
    }
    config = with_design(DominoConfig, fixed, source.design)
    head = DominoHead(config, source.vocab_ids, source.dropout)
    return TrainableDomino(head.to(source.embedding.device), source.embedding)


class TrainableDomino:
    """Implements TrainableCorrector on a DominoHead."""

    def __init__(self, head: DominoHead, embedding: torch.Tensor) -> None:
        self._head, self._embedding = head, embedding
        self._rows: torch.Tensor | None = None
        if head.config.is_reduced:
            self._rows = draft_rows(head.d2t, head.config.vocab_size)

    @property
    def module(self) -> nn.Module:
        """The head."""
        return self._head

    def scores(
        self,
        lattice: Lattice,
        gold_ids: torch.Tensor,
        rows: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        """See TrainableCorrector. The GRU reads every row once, whatever places are asked for."""
        left = left_ids(lattice, gold_ids).clamp(min=0)  # past the text's end nothing is asked
        embedded = self._embedding[left].to(self._head.recurrent_weight.dtype)
        states, _ = self._head.prefix_gru(embedded)
        hidden_inputs = self._head.hidden_inputs(lattice.hidden[rows, positions])
        latents = self._head.latents(hidden_inputs, states[rows, positions])
        ids = lattice.candidate_ids[rows, positions]
        codes = ids if self._rows is None else self._rows[ids]
        biases = torch.einsum("pe,pke->pk", latents, F.embedding(codes, self._head.output_rows))
        corrected = positions >= self._head.config.pure_draft_prefix_len
        return lattice.candidate_logits[rows, positions] + biases * corrected[:, None]

    def inference(self) -> DominoCorrector:
        """See TrainableCorrector."""
        return DominoCorrector(copy.deepcopy(self._head).eval(), self._embedding)

    def save(self, folder: Path, belonging: Belonging) -> None:
        """See TrainableCorrector."""
        save_domino(folder, self._head, belonging)
