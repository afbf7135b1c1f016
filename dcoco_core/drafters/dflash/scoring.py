"""From final drafter states to the top-K candidates over the target's vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.errors import ConfigError
from dcoco_core.target.linear import Linear

_SPARE = 8  # more than rounding to bfloat16 lets pass a better candidate by


class Scored(NamedTuple):
    """The candidates of M positions, by falling logit, ties to the lowest id."""

    ids: torch.Tensor  # [M, K] int64, target vocabulary
    logits: torch.Tensor  # [M, K] float32
    log_normalizer: torch.Tensor  # [M] float32, over the whole draft vocabulary


class CandidateHead:
    """The target's head, whole or its rows of a reduced draft vocabulary.

    In bfloat16 the product over the vocabulary only draws up a shortlist, a little longer than K,
    and the shortlist is scored again in float32: rounded logits tie too often to be ranked.

    Args:
        weight: [draft vocabulary, H]; its dtype is that of the product.
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
                f"num_candidates must be 1 to {len(weight)} (draft vocabulary): {num_candidates}"
            )
        self._head = Linear(weight)
        self._vocab_ids = vocab_ids
        self._multiplier, self._softcap = config.output_multiplier, config.final_logit_softcapping
        self.num_candidates = num_candidates

    def __call__(self, hidden: torch.Tensor) -> Scored:
        """Final-normed states [M, H] to their candidates."""
        weight = self._head.weight
        rough = self._head(hidden.to(weight.dtype))
        logits = self._shaped(rough.float())
        if weight.dtype == torch.float32:
            values, indices = top_candidates(logits, self.num_candidates)
        else:
            shortlist = min(self.num_candidates + _SPARE, len(weight))
            indices = rough.topk(shortlist, dim=-1).indices.sort(-1).values
            exact = torch.bmm(weight[indices].float(), hidden.float()[..., None])[..., 0]
            values, order = self._shaped(exact).sort(dim=-1, descending=True, stable=True)
            values = values[:, : self.num_candidates]
            indices = indices.gather(-1, order[:, : self.num_candidates])
        ids = indices if self._vocab_ids is None else self._vocab_ids[indices]
        return Scored(ids, values, logits.logsumexp(-1))

    def _shaped(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits after the checkpoint's multiplier and softcap, which keep their order."""
        if self._multiplier != 1.0:
            logits = logits * self._multiplier
        if self._softcap is not None:
            logits = self._softcap * torch.tanh(logits / self._softcap)
        return logits


def top_candidates(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and indices [M, k] of the largest of [M, V], ties to the lowest index."""
    values, indices = logits.topk(min(k + 1, logits.shape[-1]), dim=-1)
    # topk leaves the order of equal values open, also which of them enter at the boundary.
    crowded = (values[:, k - 1 : k] == values[:, k:]).any(-1)
    indices = indices[:, :k]
    for row in crowded.nonzero().flatten().tolist():
        indices[row] = logits[row].sort(descending=True, stable=True).indices[:k]
    indices = indices.sort(-1).values
    values, order = logits.gather(-1, indices).sort(dim=-1, descending=True, stable=True)
    return values, indices.gather(-1, order)
