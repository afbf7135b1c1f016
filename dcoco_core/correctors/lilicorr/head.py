"""The LiLiCorr head (arXiv 2608.20530): a bidirectional transformer over a candidate lattice.

Tensor names, config keys and the computation are those of NVIDIA Model-Optimizer's exported
checkpoints (#2342) and their servers (sglang #37462), so that either side's weights fit. Published
sizes are 1024 at hidden 4096 with 8 candidates; the defaults here keep the proportion at hidden
576. Unary logits enter as features and are not added to the scores: the cosines of pairs, times a
fixed scale, are all there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from dcoco_core.correctors.lilicorr.layer import LatticeLayer

NUM_FEATURES = 5
"""log-prob, probability, gap to the position's best, rank fraction, is-first."""
_INIT_STD = 0.02


@dataclass(frozen=True, slots=True)
class LiLiCorrConfig:
    """Sizes and constants. `hidden_size` is the target's and the drafter's.

    Slots are told apart up to block_size - 1 proposals.
    """

    hidden_size: int
    block_size: int
    lilicorr_candidate_topk: int = 16
    lilicorr_hidden_size: int = 128
    lilicorr_num_layers: int = 2
    lilicorr_num_heads: int = 4
    lilicorr_mlp_ratio: float = 2.0
    lilicorr_factor_dim: int = 128
    lilicorr_vector_eps: float = 1e-4
    lilicorr_logit_scale: float = 8.0
    rms_norm_eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class Factors:
    """Unit vectors; the score of a pair is the product of its two, scaled."""

    start: torch.Tensor  # [R, F] of the anchor, as predecessor
    outgoing: torch.Tensor  # [R, S, K, F] of candidates as predecessors
    incoming: torch.Tensor  # [R, S, K, F] of candidates as successors


class LiLiCorrHead(nn.Module):
    """Turns a lattice into factors. Its parameters carry no prefix; see LiLiCorr."""

    def __init__(self, config: LiLiCorrConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        width, size = config.lilicorr_hidden_size, config.hidden_size
        heads, factors = config.lilicorr_num_heads, config.lilicorr_factor_dim
        # As in the published head: none where the head is as wide as the target.
        self.token_proj = nn.Identity() if size == width else nn.Linear(size, width)
        self.pass_hidden_proj = nn.Linear(size, width)
        self.feature_mlp = nn.Sequential(
            nn.LayerNorm(NUM_FEATURES),
            nn.Linear(NUM_FEATURES, width),
            nn.SiLU(),
            nn.Linear(width, width),
        )
        slots = config.block_size - 1
        self.slot_embedding = nn.Parameter(_INIT_STD * torch.randn(1, 1, slots, 1, width))
        num_ranks = config.lilicorr_candidate_topk
        self.rank_embedding = nn.Parameter(_INIT_STD * torch.randn(1, 1, 1, num_ranks, width))
        self.relative_slot_bias = nn.Parameter(torch.zeros(heads, 2 * config.block_size - 1))
        self.same_slot_bias = nn.Parameter(torch.zeros(heads))
        self.context_proj = nn.Linear(size, width)
        self.layers = nn.ModuleList(
            LatticeLayer(width, heads, config.lilicorr_mlp_ratio, config.rms_norm_eps, dropout)
            for _ in range(config.lilicorr_num_layers)
        )
        self.output_norm = nn.RMSNorm(width, config.rms_norm_eps)
        self.anchor_norm = nn.RMSNorm(width, config.rms_norm_eps)
        self.factor_input_proj = nn.Linear(3 * width, width)
        self.out_head = nn.Linear(width, factors)
        self.in_head = nn.Linear(width, factors)
        self.anchor_out_head = nn.Linear(width, factors)

    def token_states(self, embedding: torch.Tensor) -> torch.Tensor:
        """[..., d] share of a node that its token gives: [..., H] rows of the embedding."""
        states: torch.Tensor = self.token_proj(embedding.to(self.same_slot_bias.dtype))
        return states

    def forward(
        self,
        tokens: torch.Tensor,
        log_probs: torch.Tensor,
        hidden: torch.Tensor,
        last_context: torch.Tensor,
        is_drafted: torch.Tensor,
    ) -> Factors:
        """The whole lattice at once.

        Args:
            tokens: [R, S, K, d] token_states of the candidates.
            log_probs: [R, S, K] draft log-probs.
            hidden: [R, S, H] final-normed drafter states.
            last_context: [R, H] context row of the position before the anchor.
            is_drafted: [R, S] bool; positions that are padding are seen by no other.
        """
        dtype = self.same_slot_bias.dtype
        num_rows, num_slots, num_ranks, _ = tokens.shape
        slots = torch.arange(num_slots, device=tokens.device)
        # Blocks longer than the trained one: the last slot stands for those behind it.
        known = slots.clamp(max=self.slot_embedding.shape[2] - 1)
        nodes = tokens + self.pass_hidden_proj(hidden.to(dtype))[:, :, None]
        nodes = nodes + self.feature_mlp(_features(log_probs.to(dtype)))
        nodes = nodes + self.slot_embedding[0, :, known] + self.rank_embedding[0, :, :, :num_ranks]
        nodes = nodes.masked_fill(~is_drafted[..., None, None], 0).flatten(1, 2)
        bias = self._attention_bias(slots, num_ranks)
        seen = is_drafted.repeat_interleave(num_ranks, dim=1)[:, None, None]
        bias = bias.expand(num_rows, -1, -1, -1).masked_fill(~seen, float("-inf"))
        for layer in self.layers:
            nodes = layer(nodes, bias)
        nodes = self.output_norm(nodes).view(num_rows, num_slots, num_ranks, -1)

        anchor = self.anchor_norm(self.context_proj(last_context.to(dtype)))
        beside = anchor[:, None, None].expand_as(nodes)
        joined = self.factor_input_proj(torch.cat([nodes, beside, nodes * beside], dim=-1))
        joined = F.silu(joined)
        return Factors(
            start=self._unit(self.anchor_out_head(anchor)),
            outgoing=self._unit(self.out_head(joined)),
            incoming=self._unit(self.in_head(joined)),
        )

    def _attention_bias(self, slots: torch.Tensor, num_ranks: int) -> torch.Tensor:
        """[heads, N, N] for the N = S * K nodes, by how far their slots are apart."""
        apart = slots[:, None] - slots[None]
        reach = self.config.block_size - 1
        bias = self.relative_slot_bias[:, apart.clamp(-reach, reach) + reach]
        bias = bias + (apart == 0) * self.same_slot_bias[:, None, None]
        return bias.repeat_interleave(num_ranks, 1).repeat_interleave(num_ranks, 2)

    def _unit(self, vectors: torch.Tensor) -> torch.Tensor:
        return F.normalize(vectors, dim=-1, eps=self.config.lilicorr_vector_eps)


class LiLiCorr(nn.Module):
    """The head under its published prefix, `lilicorr.`."""

    def __init__(self, config: LiLiCorrConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.lilicorr = LiLiCorrHead(config, dropout)

    @property
    def config(self) -> LiLiCorrConfig:
        """The head's."""
        return self.lilicorr.config


def _features(log_probs: torch.Tensor) -> torch.Tensor:
    """[R, S, K] log-probs, ranked, to [R, S, K, 5]."""
    ranks = torch.arange(log_probs.shape[-1], device=log_probs.device)
    fraction = ranks / max(log_probs.shape[-1] - 1, 1)
    # The last candidates of a small vocabulary can have log-prob -inf.
    log_probs = log_probs.clamp(min=-1e4)
    return torch.stack(
        [
            log_probs,
            log_probs.exp(),
            log_probs - log_probs.amax(dim=-1, keepdim=True),
            fraction.to(log_probs.dtype).expand_as(log_probs),
            (ranks == 0).to(log_probs.dtype).expand_as(log_probs),
        ],
        dim=-1,
    )
