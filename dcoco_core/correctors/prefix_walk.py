"""The prefix-first walk: left to right, the best continuation of what was already chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from dcoco_core.sampling.draft_noise import draft_perturbation
from dcoco_core.types import Draft, Lattice

ScoresAfter = Callable[[int, torch.Tensor], torch.Tensor]
"""(position, ranks chosen at the position before [R]) to scores [R, K], larger is better.

At position 0 the predecessor is the anchor, and the ranks are all zero.
"""


def first_candidates(lattice: Lattice, num_candidates: int) -> Lattice:
    """The lattice cut to its best `num_candidates` per position; a shorter list stays as it is."""
    if lattice.candidate_ids.shape[2] <= num_candidates:
        return lattice
    return replace(
        lattice,
        candidate_ids=lattice.candidate_ids[..., :num_candidates],
        candidate_logits=lattice.candidate_logits[..., :num_candidates],
    )


def prefix_walk(lattice: Lattice, scores_after: ScoresAfter) -> Draft:
    """Chooses one candidate per position, each after the one chosen before it.

    A greedy row takes the best score, ties to the lowest rank. A coupled row adds the request's
    own noise to score / temperature, a rejection row noise of the draft stream: by the Gumbel-max
    identity its token is a draw from softmax(score / temperature), which is returned for it as
    draft_probs. Nothing in the loop reads a value back from the device.

    Args:
        lattice: R rows, S >= 1 positions, K candidates, all on one device.
        scores_after: called once per position, in order.
    """
    candidate_ids = lattice.candidate_ids
    num_rows, num_positions, _ = candidate_ids.shape
    inv_temperature, perturbation, is_sampled = draft_perturbation(lattice.headers, candidate_ids)
    rank = torch.zeros(num_rows, dtype=torch.int64, device=candidate_ids.device)
    ranks, scaled = [], []
    for position in range(num_positions):
        scores = scores_after(position, rank).double() * inv_temperature[:, None]
        rank = (scores + perturbation[:, position]).argmax(dim=-1)
        ranks.append(rank)
        scaled.append(scores)

    chosen = torch.stack(ranks, dim=1)[..., None]  # [R, S, 1]
    draft_probs = None
    if bool(is_sampled.any()):
        drawn_from = torch.stack(scaled, dim=1).softmax(dim=-1)
        one_hot = torch.zeros_like(drawn_from).scatter_(-1, chosen, 1.0)
        draft_probs = torch.where(is_sampled[:, None, None], drawn_from, one_hot).float()
    return Draft(
        headers=lattice.headers,
        token_ids=candidate_ids.gather(-1, chosen)[..., 0],
        candidate_ids=candidate_ids,
        draft_probs=draft_probs,
        gaps=lattice.gaps,
    )
