"""Greedy: the token is the target's argmax."""

from __future__ import annotations

import torch


def greedy_tokens(target_logits: torch.Tensor) -> torch.Tensor:
    """The target's token for every row of [N, V] logits, ties to the lowest id, [N] int64."""
    return target_logits.argmax(-1)
