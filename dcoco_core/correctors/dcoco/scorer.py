"""The pair scorer of DCOCO: how well one candidate continues another.

DCOCO (arXiv 2610.12570) publishes its sizes (16 candidates, widths 128 and 128, a two-layer
MLP of 256) and its parameter counts, not its tensors. Both counts equal 512 * hidden + 132,353,
which bias-free maps of [token embedding | drafter state] and [left state | state] to 128, and an
MLP 515 -> 256 -> 1 with biases, meet exactly. That reconstruction is what is built here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

NUM_SCALARS = 3
"""log-prob of the predecessor, log-prob of the candidate, its gap to the position's best."""
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "relu": F.relu,
}


@dataclass(frozen=True, slots=True)
class ScorerConfig:
    """Sizes and design of a pair scorer. `hidden_size` is the target's and the drafter's.

    The design is what the publication leaves open; the defaults are the reconstruction above.
    """

    hidden_size: int
    num_candidates: int = 16
    candidate_size: int = 128
    pair_size: int = 128
    mlp_size: int = 256
    add_base_logit: bool = True
    """Whether the candidate's draft log-prob is added to the MLP's score."""
    candidate_reads: Literal["both", "embedding", "hidden"] = "both"
    """What a candidate state is projected from: token embedding, drafter state, or both."""
    pair_state: bool = True
    """Whether the MLP reads the projected states of the pair's two positions."""
    scalars: bool = True
    """Whether the MLP reads the three scalars."""
    activation: Literal["silu", "gelu", "relu"] = "silu"
    """Of the MLP's inner layer."""

    @property
    def num_inputs(self) -> int:
        """Width of the MLP's input: three candidate blocks, then pair state, then scalars."""
        return 3 * self.candidate_size + self.pair_width + self.num_scalars

    @property
    def pair_width(self) -> int:
        """Width of the pair state, 0 without."""
        return self.pair_size if self.pair_state else 0

    @property
    def num_scalars(self) -> int:
        """Scalars read, 0 without."""
        return NUM_SCALARS if self.scalars else 0


@dataclass(frozen=True, slots=True)
class LatticeFeatures:
    """What the scorer knows of a lattice before any predecessor is chosen."""

    anchor: torch.Tensor  # [R, D] candidate state of the anchor token
    candidates: torch.Tensor  # [R, S, K, D]
    successor: torch.Tensor  # [R, S, K, M] share of the first MLP layer
    log_probs: torch.Tensor  # [R, S, K]


class PairScorer(nn.Module):
    """score(a -> b) = MLP([c_a | c_b | c_a * c_b | s_t | scalars]) (+ log-prob of b).

    c is the candidate state of a token at its position, s_t the pair state of positions t - 1 and
    t. Token embeddings and drafter states enter with unit root mean square: raw embeddings are
    small, and no parameter is left for a learned norm. The position before the first is the
    anchor's: its state is the last context row, and its log-prob 0.
    """

    def __init__(self, config: ScorerConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        size = config.candidate_size
        num_read = 2 if config.candidate_reads == "both" else 1
        self.candidate_proj = nn.Linear(num_read * config.hidden_size, size, bias=False)
        if config.pair_state:
            self.pair_proj = nn.Linear(2 * config.hidden_size, config.pair_size, bias=False)
        self.mlp_in = nn.Linear(config.num_inputs, config.mlp_size)
        self.dropout = nn.Dropout(dropout)  # while training only
        self.mlp_out = nn.Linear(config.mlp_size, 1)
        # An untrained scorer returns the draft as it is.
        nn.init.zeros_(self.mlp_out.weight)
        nn.init.zeros_(self.mlp_out.bias)

    def token_states(self, embedding: torch.Tensor) -> torch.Tensor:
        """The token's share of its candidate state: [..., H] embedding rows to [..., D]."""
        weight = self.candidate_proj.weight
        if self.config.candidate_reads == "hidden":
            return weight.new_zeros(*embedding.shape[:-1], self.config.candidate_size)
        return F.linear(_unit_rms(embedding.to(weight.dtype)), weight[:, : self.config.hidden_size])

    def features(
        self,
        anchor: torch.Tensor,
        candidates: torch.Tensor,
        log_probs: torch.Tensor,
        hidden: torch.Tensor,
        last_context: torch.Tensor,
    ) -> LatticeFeatures:
        """Everything that does not depend on a choice.

        Args:
            anchor: [R, D] token_states of the anchors.
            candidates: [R, S, K, D] token_states of the candidates.
            log_probs: [R, S, K] draft log-probs.
            hidden: [R, S, H] final-normed drafter states.
            last_context: [R, H] context row of the position before the anchor.
        """
        dtype = self.candidate_proj.weight.dtype
        config, weight = self.config, self.mlp_in.weight
        states = _unit_rms(torch.cat([last_context[:, None], hidden], dim=1).to(dtype))
        if config.candidate_reads != "embedding":
            share = F.linear(states, self.candidate_proj.weight[:, -config.hidden_size :])
            anchor, candidates = anchor + share[:, 0], candidates + share[:, 1:, None]

        size = config.candidate_size
        log_probs = log_probs.to(dtype)
        successor = F.linear(candidates, weight[:, size : 2 * size], self.mlp_in.bias)
        if config.pair_state:
            pair_states = self.pair_proj(torch.cat([states[:, :-1], states[:, 1:]], dim=-1))
            share = F.linear(pair_states, weight[:, 3 * size : 3 * size + config.pair_size])
            successor = successor + share[:, :, None]
        if config.scalars:
            gaps = log_probs - log_probs.amax(dim=-1, keepdim=True)
            share = F.linear(torch.stack([log_probs, gaps], dim=-1), weight[:, -2:])
            successor = successor + share
        return LatticeFeatures(anchor, candidates, successor, log_probs)

    def pair_scores(
        self,
        previous: torch.Tensor,
        previous_log_probs: torch.Tensor,
        candidates: torch.Tensor,
        successor: torch.Tensor,
        log_probs: torch.Tensor,
    ) -> torch.Tensor:
        """Scores of K candidates after each of P predecessors at the position before: [B, P, K].

        The first layer is linear in the blocks of its input, so only the product block is
        computed per pair.

        Args:
            previous: [B, P, D] candidate states of the predecessors.
            previous_log_probs: [B, P].
            candidates: [B, K, D].
            successor: [B, K, M], LatticeFeatures.successor.
            log_probs: [B, K].
        """
        size = self.config.candidate_size
        weight = self.mlp_in.weight
        predecessor = F.linear(previous, weight[:, :size])
        if self.config.scalars:
            predecessor = predecessor + previous_log_probs[..., None] * weight[:, -NUM_SCALARS]
        product = previous[:, :, None] * candidates[:, None]
        layer = F.linear(product, weight[:, 2 * size : 3 * size])
        layer = layer + predecessor[:, :, None] + successor[:, None]
        layer = self.dropout(_ACTIVATIONS[self.config.activation](layer))
        scores: torch.Tensor = self.mlp_out(layer)[..., 0]
        return scores + log_probs[:, None] if self.config.add_base_logit else scores


def _unit_rms(states: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(states, states.shape[-1:], eps=1e-12)
