"""Scores of all adjacent pairs of a lattice, and the draft that the prefix walk makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from dcoco_core.correctors.prefix_walk import first_candidates, prefix_walk
from dcoco_core.types import Draft, Lattice


@dataclass(frozen=True, slots=True)
class PairScores:
    """How well every candidate continues every candidate of the position before it."""

    first: torch.Tensor  # [R, K] after the anchor
    pairs: torch.Tensor  # [R, S - 1, K, K]: [row, position - 1, predecessor, candidate]

    def after(self, position: int, rank: torch.Tensor) -> torch.Tensor:
        """[R, K] scores at `position` after the chosen ranks [R]; a prefix_walk.ScoresAfter."""
        if position == 0:
            return self.first
        rows = torch.arange(len(rank), device=rank.device)
        return self.pairs[rows, position - 1, rank]


def correct_by_pairs(
    lattice: Lattice,
    num_candidates: int,
    device: torch.device,
    pair_scores: Callable[[Lattice], PairScores],
) -> Draft:
    """The prefix walk over `pair_scores` of the lattice's best candidates, on `device`."""
    lattice = on_device(first_candidates(lattice, num_candidates), device)
    if lattice.candidate_ids.shape[:2].numel() == 0:
        return Draft(lattice.headers, lattice.candidate_ids[..., 0], gaps=lattice.gaps)
    return prefix_walk(lattice, pair_scores(lattice).after)


def anchor_ids(lattice: Lattice) -> torch.Tensor:
    """[R] token ids of the anchors."""
    ids = [header.anchor_id for header in lattice.headers]
    return torch.tensor(ids, dtype=torch.int64, device=lattice.candidate_ids.device)


def left_ids(lattice: Lattice, gold_ids: torch.Tensor) -> torch.Tensor:
    """[R, S] the token before every position: the anchor, then the gold tokens [R, S]."""
    return torch.cat([anchor_ids(lattice)[:, None], gold_ids[:, :-1].long()], dim=1)


def on_device(lattice: Lattice, device: torch.device) -> Lattice:
    """The lattice with its tensors on `device`."""
    if lattice.candidate_ids.device == device:
        return lattice
    return replace(
        lattice,
        candidate_ids=lattice.candidate_ids.to(device),
        candidate_logits=lattice.candidate_logits.to(device),
        log_normalizer=lattice.log_normalizer.to(device),
        hidden=lattice.hidden.to(device),
        last_context=lattice.last_context.to(device),
    )
