"""What training needs of a corrector; one implementation per kind, chosen by name."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from dcoco_core.correctors.checkpoint import Belonging
from dcoco_core.protocols import Corrector
from dcoco_core.registry import Registry
from dcoco_core.types import Lattice


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


TRAINABLE: Registry[TrainableCorrector] = Registry("trainable corrector")


@TRAINABLE.register("dcoco")
def _dcoco(embedding: torch.Tensor, dropout: float) -> TrainableCorrector:
    from dcoco_core.correctors.dcoco.trainable import TrainableDCOCO

    return TrainableDCOCO(embedding, dropout)
