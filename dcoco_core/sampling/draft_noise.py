"""The noise a corrector adds to its scores, so that a sampled draft is drawn as its rule asks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dcoco_core.sampling.noise import Stream, gumbel, stream_key
from dcoco_core.types import RowHeader, Rule

_STREAMS = {Rule.COUPLED: Stream.TARGET, Rule.REJECTION: Stream.DRAFT}


def draft_perturbation(
    headers: Sequence[RowHeader], candidate_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What turns candidate scores into draws: argmax(score * inv_temperature + perturbation).

    A greedy row gets no noise. A coupled row gets the noise its target token is decided with, so
    that draft and target agree as often as their distributions allow. A rejection row gets noise
    that nothing else sees: its draft token is a sample of softmax(score * inv_temperature) over
    the candidates, and that softmax is what `Draft.draft_probs` has to say.

    Args:
        headers: R rows.
        candidate_ids: [R, S, K] int64, target vocabulary.

    Returns:
        inv_temperature [R] float64 (1 for greedy rows), perturbation [R, S, K] float64, and
        is_sampled [R] bool (true for rejection rows, whose draft_probs are needed).
    """
    device = candidate_ids.device
    rules = [header.sampling.rule for header in headers]
    inv_temperature = torch.tensor(
        [
            1.0 if rule is Rule.GREEDY else 1.0 / header.sampling.temperature
            for rule, header in zip(rules, headers, strict=True)
        ],
        dtype=torch.float64,
        device=device,
    )
    is_sampled = torch.tensor(
        [rule is Rule.REJECTION for rule in rules], dtype=torch.bool, device=device
    )
    perturbation = torch.zeros(candidate_ids.shape, dtype=torch.float64, device=device)
    noisy = [row for row, rule in enumerate(rules) if rule is not Rule.GREEDY]
    if noisy:
        keys = [stream_key(headers[r].sampling.noise_key, _STREAMS[rules[r]]) for r in noisy]
        starts = torch.tensor([headers[r].start for r in noisy], device=device)
        offsets = torch.arange(1, candidate_ids.shape[1] + 1, device=device)
        rows = torch.tensor(noisy, device=device)
        perturbation[rows] = gumbel(
            torch.tensor(keys, dtype=torch.int64, device=device)[:, None, None],
            (starts[:, None] + offsets)[:, :, None],
            candidate_ids[rows],
        )
    return inv_temperature, perturbation, is_sampled
