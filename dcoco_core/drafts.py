"""Building drafts without a corrector: none at all, plain rows, and several batches as one.

In a process without torch the same on arrays (dcoco_core/arrays.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dcoco_core import arrays
from dcoco_core.types import Draft, RowHeader

if TYPE_CHECKING:
    import torch


def plain_draft(headers: Sequence[RowHeader] = ()) -> Draft:
    """A draft without proposals (S = 0): its rows are decoded plainly in the next step.

    This is also how a lost drafter or corrector costs speed and not answers.
    """
    if not arrays.is_torch_loaded():
        return arrays.plain_draft(headers)
    import torch

    return Draft(tuple(headers), torch.empty((len(headers), 0), dtype=torch.int64))


def merge_drafts(drafts: Sequence[Draft]) -> Draft:
    """One draft out of several; shorter ones are padded on the right."""
    if not drafts:
        return plain_draft()
    if len(drafts) == 1:
        return drafts[0]
    headers = tuple(header for draft in drafts for header in draft.headers)
    gaps = tuple(gap for draft in drafts for gap in draft.gaps)
    if any(arrays.as_array(draft.token_ids) is not None for draft in drafts):
        # Emulated drafts are deterministic: there are no probabilities to merge.
        tables = [np.asarray(draft.token_ids) for draft in drafts]
        return Draft(headers, arrays.as_tensor(arrays.concatenate(tables)), gaps=gaps)
    import torch

    num_positions = max(draft.token_ids.shape[1] for draft in drafts)
    probs = candidates = None
    if any(draft.draft_probs is not None for draft in drafts):
        width = max(d.draft_probs.shape[2] for d in drafts if d.draft_probs is not None)
        widened = [_with_probs(draft, width) for draft in drafts]
        candidates = torch.cat([_pad(ids, num_positions) for ids, _ in widened])
        probs = torch.cat([_pad(table, num_positions) for _, table in widened])
    return Draft(
        headers=headers,
        token_ids=torch.cat([_pad(draft.token_ids, num_positions) for draft in drafts]),
        candidate_ids=candidates,
        draft_probs=probs,
        gaps=gaps,
    )


def _pad(table: torch.Tensor, num_positions: int) -> torch.Tensor:
    """[R, S, ...] to [R, num_positions, ...] with zeros."""
    import torch

    missing = num_positions - table.shape[1]
    if missing == 0:
        return table
    padding = table.new_zeros((table.shape[0], missing, *table.shape[2:]))
    return torch.cat([table, padding], dim=1)


def _with_probs(draft: Draft, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The draft's candidates and probabilities at K = width; one-hot where it has none."""
    import torch

    if draft.candidate_ids is None or draft.draft_probs is None:
        ids, probs = draft.token_ids[..., None], torch.ones_like(draft.token_ids[..., None]).float()
    else:
        ids, probs = draft.candidate_ids, draft.draft_probs
    missing = width - ids.shape[2]
    if missing:
        ids = torch.cat([ids, ids[..., -1:].expand(*ids.shape[:2], missing)], dim=2)
        probs = torch.cat([probs, probs.new_zeros((*probs.shape[:2], missing))], dim=2)
    return ids, probs
