"""Drawing a token: argmax of score + Gumbel noise is a sample of softmax(score).

Maddison, Tarlow, Minka 2014, "A* sampling", section 2. Without filters most of a vocabulary has
no chance: `contenders` proves so from the raw random bits, exactly, and only the rest pay for
logarithms.
"""

from __future__ import annotations

import math

import torch
from torch.nn.utils.rnn import pad_sequence

from dcoco_core.sampling.filters import TargetScores
from dcoco_core.sampling.noise import UNIFORM_BITS, gumbel, vocabulary_bits

_LAZY_FROM = 4096  # ids; below it the full computation is as fast
_LAZY_DEPTH = 8.0  # nats below the largest score
_BOUND_MARGIN = 1e-12  # relative; far above the 2e-15 of the logarithms


def gumbel_argmax(
    scores: TargetScores, keys: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """One token per row, distributed as the scores say; ties to the lowest id.

    Args:
        scores: R rows.
        keys: [R] from `stream_keys`.
        positions: [R] absolute position in the sequence of the token being drawn.

    Returns:
        Token ids, [R] int64.
    """
    values, ids = scores.values, scores.ids
    if ids is None and values.shape[1] >= _LAZY_FROM and values.device.type == "cpu":
        scores = contenders(values, keys, positions)
        values, ids = scores.values, scores.ids
    if ids is None:
        ids = torch.arange(values.shape[1], device=values.device)
    perturbed = values + gumbel(keys[:, None], positions[:, None], ids)
    is_best = perturbed == perturbed.amax(-1, keepdim=True)
    return torch.where(is_best, ids, torch.iinfo(torch.int64).max).amin(-1)


def contenders(values: torch.Tensor, keys: torch.Tensor, positions: torch.Tensor) -> TargetScores:
    """The few ids of [R, V] scores that can win `gumbel_argmax`; it draws the same from them.

    The likeliest id's own perturbed score is a bound any winner reaches. An id more than 8 nats
    below it reaches the bound only with noise above `bound + 8`, that is with a uniform above
    exp(-exp(-(bound + 8))): a test on integers, no logarithm.
    """
    largest, likeliest = values.max(-1)
    bounds = largest + gumbel(keys, positions, likeliest)
    all_bits = vocabulary_bits(keys, positions, values.shape[1])
    kept_values, kept_ids = [], []
    rows = zip(values, all_bits, (largest - _LAZY_DEPTH).tolist(), bounds.tolist(), strict=True)
    for row, bits, floor, bound in rows:
        least = math.exp(-math.exp(floor - bound)) * (1.0 - _BOUND_MARGIN)
        is_loud = bits >= int(least * 2.0**UNIFORM_BITS) - 1
        ids = (row >= floor).logical_or_(is_loud).nonzero().flatten()
        kept_ids.append(ids)
        kept_values.append(row[ids])
    return TargetScores(
        pad_sequence(kept_values, True, -torch.inf), pad_sequence(kept_ids, True, 0)
    )
