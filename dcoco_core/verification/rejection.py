"""Rejection: keep a draft token with min(1, target_prob / draft_prob), else draw the residual.

Leviathan, Kalman, Matias 2023, "Fast inference from transformers via speculative decoding",
algorithm 1 and appendix A.1; Chen et al. 2023, "Accelerating large language model decoding with
speculative sampling", theorem 1. The residual is max(target_probs - draft_probs, 0), normalised.
A deterministic draft has one-hot draft_probs: it is kept with target_prob, and the residual is
the target without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dcoco_core.sampling.draw import gumbel_argmax
from dcoco_core.sampling.filters import TargetScores
from dcoco_core.sampling.noise import uniform


@dataclass(frozen=True, slots=True)
class Proposal:
    """One draft token per row and what it was drawn from.

    A row with nothing left to judge has token -1 and draft_probs of zero: its residual is the
    target itself, which makes the bonus token a residual draw like any other.
    """

    token_ids: torch.Tensor  # [R] int64
    candidate_ids: torch.Tensor  # [R, K] int64; an id may occur twice
    draft_probs: torch.Tensor  # [R, K] float64


@dataclass(frozen=True, slots=True)
class RejectionKeys:
    """The two independent streams of the rule, [R] each."""

    accept: torch.Tensor
    residual: torch.Tensor

    def rows(self, indices: torch.Tensor) -> RejectionKeys:
        """The chosen rows."""
        return RejectionKeys(self.accept[indices], self.residual[indices])


def rejection_tokens(
    target: TargetScores, proposal: Proposal, keys: RejectionKeys, positions: torch.Tensor
) -> torch.Tensor:
    """The draft token where it is accepted, the recovered (or bonus) token elsewhere, [R] int64.

    A recovered token never equals the rejected one, so the caller reads acceptance off equality.
    """
    mass = target.mass()
    token_ids = proposal.token_ids
    is_token = proposal.candidate_ids == token_ids[:, None]
    draft_prob = (proposal.draft_probs * is_token).sum(-1)
    target_prob = _weights_of(target, token_ids[:, None])[:, 0] / mass
    draws = uniform(keys.accept, positions, torch.zeros_like(positions))
    tokens = token_ids.clone()
    rejected = (draws * draft_prob >= target_prob).nonzero().flatten()
    if rejected.numel():
        residual = _residual(
            target.rows(rejected),
            proposal.candidate_ids[rejected],
            proposal.draft_probs[rejected] * mass[rejected, None],
        )
        tokens[rejected] = gumbel_argmax(residual, keys.residual[rejected], positions[rejected])
    return tokens


def _weights_of(target: TargetScores, token_ids: torch.Tensor) -> torch.Tensor:
    """exp(score) of [R, K] tokens; 0 for a token that was filtered out, or -1."""
    if target.ids is None:
        weights = target.values.gather(-1, token_ids.clamp(min=0)).exp()
        return weights.masked_fill(token_ids < 0, 0.0)
    is_token = token_ids[:, :, None] == target.ids[:, None, :]  # [R, K, M]
    return (is_token * target.values.exp()[:, None, :]).sum(-1)


def _residual(
    target: TargetScores, candidate_ids: torch.Tensor, draft_weights: torch.Tensor
) -> TargetScores:
    """Scores of max(target - draft, 0), in units of the target's mass.

    Only the candidates' columns differ from the target's. Where nothing is left, which rounding
    alone can cause (the two distributions agree to the last bit), the target itself stands in.
    """
    if target.ids is None:
        same = candidate_ids[:, :, None] == candidate_ids[:, None, :]
        taken = (same * draft_weights[:, None, :]).sum(-1)
        left = (_weights_of(target, candidate_ids) - taken).clamp_(min=0.0)
        values = target.values.scatter(-1, candidate_ids, left.log_())
    else:
        same = target.ids[:, :, None] == candidate_ids[:, None, :]
        taken = (same * draft_weights[:, None, :]).sum(-1)
        values = (target.values.exp() - taken).clamp_(min=0.0).log_()
    is_empty = values.amax(-1) == -torch.inf
    if bool(is_empty.any()):
        values[is_empty] = target.values[is_empty]
    return TargetScores(values, target.ids)
