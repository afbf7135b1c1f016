"""Coupled: the target's token is argmax(log target_probs + keyed noise).

Daliri, Musco, Suresh 2024, "Coupling without communication and drafter-invariant speculative
decoding", the Gumbel form. The noise is a function of the request's key, the position and the
token id, so the token is decided by the target alone. A draft made with the same noise guesses
it often; whatever the draft, the text is the same.
"""

from __future__ import annotations

import torch

from dcoco_core.sampling.draw import gumbel_argmax
from dcoco_core.sampling.filters import TargetScores


def coupled_tokens(
    target: TargetScores, target_keys: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """The target's token of R rows, [R] int64. Keys of Stream.TARGET."""
    return gumbel_argmax(target, target_keys, positions)
