"""Cross-entropy through the target's frozen head, without keeping the logits."""

from __future__ import annotations

from typing import Any

import torch

from dcoco_core.training.drafter_batch import BlockBatch

_CHUNK = 512


class _HeadCrossEntropy(torch.autograd.Function):
    """Soft cross-entropy of hidden @ head.T, computed in chunks of rows.

    The head is frozen, so the gradient of a chunk's states is known as soon as its logits are:
    it is kept, and the [rows, vocabulary] logits are not.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        head: torch.Tensor,
        ids: torch.Tensor,
        probs: torch.Tensor,
        weights: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        gradient = torch.empty_like(hidden)
        losses = torch.empty(len(hidden), device=hidden.device)
        best = torch.empty(len(hidden), dtype=torch.int64, device=hidden.device)
        for start in range(0, len(hidden), _CHUNK):
            rows = slice(start, start + _CHUNK)
            logits = (hidden[rows] @ head.T).float()
            best[rows] = logits.argmax(-1)
            log_normalizer = logits.logsumexp(-1)
            mass = probs[rows].sum(-1)
            score = (probs[rows] * logits.gather(-1, ids[rows])).sum(-1)
            losses[rows] = mass * log_normalizer - score
            slope = logits.sub_(log_normalizer[:, None]).exp_().mul_(mass[:, None])
            slope.scatter_add_(-1, ids[rows], -probs[rows])
            slope.mul_(weights[rows, None])
            gradient[rows] = slope.to(head.dtype) @ head
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(best)
        return (losses * weights).sum(), best

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0], None, None, None, None


def head_cross_entropy(
    hidden: torch.Tensor,
    head: torch.Tensor,
    ids: torch.Tensor,
    probs: torch.Tensor,
    weights: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum over rows of weights * (soft cross-entropy), and every row's best id.

    Args:
        hidden: [M, H] states, in the head's dtype.
        head: [V, H], takes no gradient.
        ids: [M, J] head rows that have target probability.
        probs: [M, J] their probabilities; they need not sum to 1.
        weights: [M].
    """
    result: tuple[torch.Tensor, torch.Tensor] = _HeadCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, head, ids, probs, weights
    )
    return result


def soft_targets(
    batch: BlockBatch, draft_ids: torch.Tensor, temperature: float, label_share: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """What each block row should say: the target's top-32, sharpened, mixed with the text's token.

    Tokens outside the draft vocabulary get no probability, and the rest is not scaled up: a row
    whose token cannot be drafted counts less.

    Args:
        batch: R sequences, N blocks, B rows.
        draft_ids: [vocab_size], the draft id of every target id, -1 where it has none.
        temperature: the recorded distribution is raised to 1 / temperature and renormalised.
        label_share: weight of the text's own token; the rest goes to the target's distribution.

    Returns:
        Draft ids [R * N * B, 33] and probabilities of the same shape.
    """
    shares = torch.softmax(batch.top_log_probs / temperature, dim=-1) * (1 - label_share)
    labels = batch.label_ids.clamp_min(0)[..., None]
    ids = draft_ids[torch.cat([batch.top_ids, labels], dim=-1)].flatten(0, 2)
    shares = torch.cat([shares, shares.new_full(labels.shape, label_share)], dim=-1)
    probs = shares.flatten(0, 2)
    return ids.clamp_min(0), probs * (ids >= 0)
