"""Temperature, top-k, top-p: from a row of logits to the distribution a request samples from.

The order is temperature, then top-k, then top-p on what is left. Ties go to the lowest id. All
arithmetic is float64, and scores are taken relative to the row's largest logit, so that a very
small temperature neither overflows nor loses digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch.nn.utils.rnn import pad_sequence

from dcoco_core.sampling.top import top_candidates
from dcoco_core.types import SamplingParams

# Elements handled at once: float64 temporaries stay in the cache, and torch sums a row of this
# size or less the same way whatever else is in the batch.
_CHUNK = 1 << 15
_SORT_WHOLE = 4096  # ids; a longer row is thinned out before it is sorted for top-p
_ROUNDING = 1e-9  # relative; far above the rounding of a float64 sum over a vocabulary


class FilterKind(Enum):
    """What decides how many ids survive; rows of one kind are filtered together."""

    UNFILTERED = "unfiltered"
    TOP_K = "top_k"
    TOP_P = "top_p"


def filter_kind(sampling: SamplingParams, vocab_size: int) -> FilterKind:
    """The filter that binds first; a top-k of the whole vocabulary or more does not bind."""
    if 0 < sampling.top_k < vocab_size:
        return FilterKind.TOP_K
    return FilterKind.TOP_P if sampling.top_p < 1.0 else FilterKind.UNFILTERED


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of R rows of one kind, as columns."""

    kind: FilterKind
    temperature: torch.Tensor  # [R] float64, above 0
    top_k: torch.Tensor  # [R] int64
    top_p: torch.Tensor  # [R] float64

    @classmethod
    def of(cls, rows: Sequence[SamplingParams], kind: FilterKind, device: torch.device) -> Filters:
        """Columns of `rows`, which all have this `kind` and a temperature above 0."""
        return cls(
            kind=kind,
            temperature=torch.tensor(
                [row.temperature for row in rows], dtype=torch.float64, device=device
            ),
            top_k=torch.tensor([row.top_k for row in rows], dtype=torch.int64, device=device),
            top_p=torch.tensor([row.top_p for row in rows], dtype=torch.float64, device=device),
        )

    def rows(self, indices: torch.Tensor) -> Filters:
        """The chosen rows."""
        return Filters(
            self.kind, self.temperature[indices], self.top_k[indices], self.top_p[indices]
        )


@dataclass(frozen=True, slots=True)
class TargetScores:
    """log target_probs of R rows, less a constant per row; the largest of a row is 0.

    `ids` names the token of every column; None means that column i is token i. A column that a
    filter cut, or padding, is -inf.
    """

    values: torch.Tensor  # [R, M] float64
    ids: torch.Tensor | None  # [R, M] int64

    def rows(self, indices: torch.Tensor) -> TargetScores:
        """The chosen rows."""
        return TargetScores(self.values[indices], None if self.ids is None else self.ids[indices])

    def mass(self) -> torch.Tensor:
        """Sum of exp(values) per row, [R]: target_probs are exp(values) / mass."""
        return exp_sum(self.values)


def target_scores(logits: torch.Tensor, filters: Filters) -> TargetScores:
    """Scores of what survives the filters, from [R, V] logits."""
    if filters.kind is FilterKind.UNFILTERED:
        return TargetScores(_tempered(logits, filters.temperature), None)
    if filters.kind is FilterKind.TOP_P:
        return _nucleus(logits, filters)
    values, ids = top_candidates(logits, int(filters.top_k.max()))
    scores = _tempered(values, filters.temperature)
    ranks = torch.arange(scores.shape[1], device=scores.device)
    scores.masked_fill_(ranks >= filters.top_k[:, None], -torch.inf)
    return TargetScores(_cut_nucleus(scores, exp_sum(scores), filters.top_p), ids)


def exp_sum(scores: torch.Tensor) -> torch.Tensor:
    """Sum of exp over the last dimension of [R, M], the same for a row in any batch."""
    chunks = scores.split(max(1, _CHUNK // scores.shape[1]))
    return torch.cat([chunk.exp().sum(-1) for chunk in chunks])


def _tempered(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """(logit - largest logit) / temperature in float64."""
    scores = torch.empty(logits.shape, dtype=torch.float64, device=logits.device)
    step = max(1, _CHUNK // logits.shape[1])
    for first in range(0, logits.shape[0], step):
        chunk = scores[first : first + step].copy_(logits[first : first + step])
        chunk.sub_(chunk.amax(-1, keepdim=True)).div_(temperature[first : first + step, None])
    return scores


def _cut_nucleus(scores: torch.Tensor, mass: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Drops what comes after the first columns that hold top_p of `mass`.

    Columns are in falling order. A column stays while those before it hold less than top_p, so
    the first always does. At top_p = 1 everything stays, whatever the sum rounds to.
    """
    weights = scores.exp()
    before = weights.cumsum(-1) - weights
    is_cut = (before >= (top_p * mass)[:, None]) & (top_p < 1.0)[:, None]
    return scores.masked_fill(is_cut, -torch.inf)


def _nucleus(logits: torch.Tensor, filters: Filters) -> TargetScores:
    """Top-p without top-k."""
    num_ids = logits.shape[1]
    if num_ids > _SORT_WHOLE and logits.device.type == "cpu":
        parts = [
            _thinned_row(logits[row], filters.temperature[row], float(filters.top_p[row]))
            for row in range(logits.shape[0])
        ]
        scores = pad_sequence([part[0] for part in parts], True, -torch.inf)
        ids = pad_sequence([part[1] for part in parts], True, 0)
        mass = torch.cat([part[2] for part in parts])
    else:
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        scores = _tempered(values, filters.temperature)
        mass = exp_sum(scores)
    return TargetScores(_cut_nucleus(scores, mass, filters.top_p), ids)


def _thinned_row(
    logits: torch.Tensor, temperature: torch.Tensor, top_p: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores [M] in falling order, ids [M] and the mass of all V, without ids that top-p drops.

    Ids that hold less than (1 - top_p) / V of the mass each hold less than 1 - top_p together,
    so the others hold the whole nucleus, and only they need sorting.
    """
    scores = _tempered(logits[None], temperature[None])
    mass = exp_sum(scores)
    least = float(mass) * (1.0 - top_p) / logits.shape[0] * (1.0 - _ROUNDING)
    ids = (scores[0] >= math.log(least)).nonzero().flatten()
    ids = ids[logits[ids].sort(descending=True, stable=True).indices]
    return scores[0][ids], ids, mass
