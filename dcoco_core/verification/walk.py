"""The walk along a block: a rule says the next token, the draft is kept while it says the same.

All rows of a batch take their steps together; a row leaves at its first difference, so a
position that no longer matters is never filtered or drawn.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

# (target logits [A, V], the rows alive [A], their place in the block) to tokens [A]
NextTokens = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def walk(
    target_logits: torch.Tensor,
    first_logits: torch.Tensor,
    draft_ids: torch.Tensor,
    next_tokens: NextTokens,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Decides R rows.

    Args:
        target_logits: [N, V]; row i's own begin at first_logits[i], one per place.
        first_logits: [R] int64.
        draft_ids: [R, S + 1] int64, padded with -1, which no token equals.
        next_tokens: The rule.

    Returns:
        num_accepted [R] and next_ids [R].
    """
    num_accepted = torch.zeros_like(first_logits)
    next_ids = torch.zeros_like(first_logits)
    alive = torch.arange(first_logits.shape[0], device=first_logits.device)
    place = 0
    while alive.numel():  # ends at the padding at the latest
        tokens = next_tokens(target_logits[first_logits[alive] + place], alive, place)
        next_ids[alive] = tokens
        alive = alive[tokens == draft_ids[alive, place]]
        num_accepted[alive] += 1
        place += 1
    return num_accepted, next_ids
