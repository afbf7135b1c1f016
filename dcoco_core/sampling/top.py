"""The k largest values of a row in one fixed order, whatever ties there are."""

from __future__ import annotations

import torch


def top_candidates(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and ids of the k largest logits, by falling logit, ties to the lowest id.

    torch.topk leaves the order of ties, and which of them it returns, undefined. bf16 logits tie
    at the cut in most rows, so without a fixed order the same request would be filtered
    differently from one run to the next.

    Args:
        logits: [R, V].
        k: 1 to V.

    Returns:
        Values [R, k] and ids [R, k] int64.
    """
    num_ids = logits.shape[-1]
    # One more than asked for shows whether the cut runs through a tie.
    values, ids = torch.topk(logits, min(k + 1, num_ids), dim=-1)
    is_cut_tied = values[:, k - 1] == values[:, k] if k < num_ids else None
    ids = ids[:, :k].sort(dim=-1).values
    if is_cut_tied is not None:
        for row in is_cut_tied.nonzero().flatten().tolist():
            ids[row] = _top_ids(logits[row], values[row, k - 1], k)
    values, order = logits.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, order)


def _top_ids(logits: torch.Tensor, cut: torch.Tensor, k: int) -> torch.Tensor:
    """The ids above `cut` and the lowest ids at it, k together, in rising order."""
    above = (logits > cut).nonzero().flatten()
    tied = (logits == cut).nonzero().flatten()[: k - above.numel()]
    return torch.cat([above, tied]).sort().values
