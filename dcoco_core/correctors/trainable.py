"""What training needs of a corrector; one implementation per kind, chosen by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from dcoco_core.correctors.checkpoint import Belonging
from dcoco_core.protocols import Corrector
from dcoco_core.types import Lattice


@dataclass(frozen=True, slots=True)
class TrainingSource:
    """What a new corrector is made of. The tensors are the target's and are not trained.

    `vocab_ids` are the ascending target ids that the drafter can propose, None for all of them.
    `design` names fields of the corrector's own config and their values, as text.
    """

    embedding: torch.Tensor  # [V, H]
    lm_head: torch.Tensor  # [V, H]
    vocab_ids: torch.Tensor | None = None  # [draft vocabulary] int64
    num_candidates: int = 16
    max_positions: int = 15  # the longest block it has to correct
    shift_label: bool = True  # the drafter's alignment, see DFlashConfig
    dropout: float = 0.0
    design: Mapping[str, str] = field(default_factory=dict)


class TrainableCorrector(Protocol):
    """A corrector with gradients, on a frozen drafter and target."""

    @property
    def module(self) -> nn.Module:
        """Its parameters, in the names of its checkpoint."""
        ...

    def scores(
        self,
        lattice: Lattice,
        gold_ids: torch.Tensor,
        rows: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        """Teacher-forced scores of the candidates at P places of the lattice: [P, K].

        Args:
            lattice: R rows, S positions.
            gold_ids: [R, S] the tokens that really followed; at the places asked for, every
                earlier one is a candidate.
            rows: [P] row of each place.
            positions: [P] position of each place.
        """
        ...

    def inference(self) -> Corrector:
        """A corrector with the current weights. Later training steps do not change its drafts."""
        ...

    def save(self, folder: Path, belonging: Belonging) -> None:
        """Writes a checkpoint that the catalog loads."""
        ...


@runtime_checkable
class WithOwnLoss(Protocol):
    """What a TrainableCorrector adds that trains more than the scores of candidates."""

    def own_loss(
        self,
        previous_ids: torch.Tensor,
        hidden: torch.Tensor,
        scores: torch.Tensor,
        target_probs: torch.Tensor,
    ) -> torch.Tensor:
        """A term added to the common loss, averaged over the same P places.

        Args:
            previous_ids: [P] the gold token before each place.
            hidden: [P, H] drafter state of each place.
            scores: [P, K] what `scores` returned.
            target_probs: [P, K] the target's at temperature 1, not renormalised.
        """
        ...
