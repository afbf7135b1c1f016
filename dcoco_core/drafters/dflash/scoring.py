"""From final drafter states to the top-K candidates over the target's vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.errors import ConfigError
from dcoco_core.target.linear import Linear


class Scored(NamedTuple):
    """The candidates of M positions, by falling logit, ties to the lowest id."""

    ids: torch.Tensor  # [M, K] int64, target vocabulary
    logits: torch.Tensor  # [M, K] float32
    log_normalizer: torch.Tensor  # [M] float32, over the whole draft vocabulary


class CandidateHead:
    """The target's head, whole or its rows of a reduced draft vocabulary, in float32.

    Args:
        weight: [draft vocabulary, H].
        vocab_ids: [draft vocabulary] ascending target ids of the rows, None for all of them.
        num_candidates: K.
        config: multiplier and softcap of the logits.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        vocab_ids: torch.Tensor | None,
        num_candidates: int,
        config: DFlashConfig,
    ) -> None:
        if not 1 <= num_candidates <= len(weight):
            raise ConfigError(
                f"num_candidates must be 1 to {len(weight)} (the draft vocabulary): {num_candidates}"
            )
        self._head = Linear(weight.float())
        self._vocab_ids = vocab_ids
        self._multiplier, self._softcap = config.output_multiplier, config.final_logit_softcapping
        self.num_candidates = num_candidates

    def __call__(self, hidden: torch.Tensor) -> Scored:
        """Final-normed states [M, H] to their candidates."""
        logits = self._head(hidden.float())
        if self._multiplier != 1.0:
            logits = logits * self._multiplier
        if self._softcap is not None:
            logits = self._softcap * torch.tanh(logits / self._softcap)
        values, indices = top_candidates(logits, self.num_candidates)
        ids = indices if self._vocab_ids is None else self._vocab_ids[indices]
        return Scored(ids, values, logits.logsumexp(-1))


def top_candidates(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and indices [M, k] of the largest of [M, V], ties to the lowest index."""
    values, indices = logits.topk(k, dim=-1)
    # topk leaves the order of equal values open, also which of them enter at the boundary.
    crowded = (logits >= values[:, -1:]).sum(-1) > k
    for row in crowded.nonzero().flatten().tolist():
        indices[row] = logits[row].sort(descending=True, stable=True).indices[:k]
    indices = indices.sort(-1).values
    values, order = logits.gather(-1, indices).sort(dim=-1, descending=True, stable=True)
    return values, indices.gather(-1, order)
