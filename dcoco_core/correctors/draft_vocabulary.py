"""Weights with a row per token that the drafter proposes, for tokens named by the target's ids.

A drafter with a reduced vocabulary stores `d2t`, the offset of every draft id to its target id;
correctors that index by draft id store the same (DSpark's and speculators' convention).
"""

from __future__ import annotations

from pathlib import Path

import torch

from dcoco_core.errors import CheckpointError


def offsets(draft_vocab_size: int, vocab_ids: torch.Tensor | None) -> torch.Tensor:
    """d2t [draft vocabulary] of ascending target ids; zeros for None, until weights are loaded."""
    draft_ids = torch.arange(draft_vocab_size)
    return torch.zeros_like(draft_ids) if vocab_ids is None else vocab_ids.cpu() - draft_ids


def draft_rows(d2t: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """[V] draft id of every target id; the number of draft ids where there is none."""
    draft_ids = torch.arange(len(d2t))
    rows = torch.full((vocab_size,), len(d2t))
    rows[d2t.cpu() + draft_ids] = draft_ids
    return rows.to(d2t.device)


def require_map(path: Path, d2t: torch.Tensor, vocab_size: int) -> None:
    """Raises CheckpointError unless d2t leads to ascending ids of the target."""
    ids = d2t + torch.arange(len(d2t))
    rising = bool((ids[1:] > ids[:-1]).all())
    if not rising or int(ids[0]) < 0 or int(ids[-1]) >= vocab_size:
        raise CheckpointError(f"{path}: d2t does not map into the target's vocabulary")


def require_size(path: Path, draft_vocab_size: int, vocab_size: int) -> None:
    """Raises CheckpointError if the draft vocabulary of `path` is larger than the target's."""
    if draft_vocab_size > vocab_size:
        raise CheckpointError(f"{path}: draft_vocab_size is more than {vocab_size}")
