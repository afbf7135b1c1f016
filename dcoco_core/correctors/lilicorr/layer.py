"""One layer of the lattice transformer."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class LatticeAttention(nn.Module):
    """Unmasked multi-head attention with a bias, its tensors named as nn.MultiheadAttention's."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self._num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, nodes: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Nodes [R, N, d] and bias [R, heads, N, N] to [R, N, d]."""
        projected = F.linear(nodes, self.in_proj_weight, self.in_proj_bias)
        by_head = projected.unflatten(-1, (3, self._num_heads, -1)).transpose(1, 3)
        query, key, value = by_head.unbind(dim=2)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        out: torch.Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return out


class LatticeLayer(nn.Module):
    """Attention and MLP, each after a norm and with dropout (while training) before its sum."""

    def __init__(
        self, width: int, num_heads: int, mlp_ratio: float, norm_eps: float, dropout: float
    ) -> None:
        super().__init__()
        inner = int(width * mlp_ratio)
        self.attn_norm = nn.RMSNorm(width, norm_eps)
        self.attn = LatticeAttention(width, num_heads)
        self.mlp_norm = nn.RMSNorm(width, norm_eps)
        self.mlp = nn.Sequential(nn.Linear(width, inner), nn.SiLU(), nn.Linear(inner, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, nodes: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Nodes [R, N, d] and bias [R, heads, N, N] to [R, N, d]."""
        nodes = nodes + self.dropout(self.attn(self.attn_norm(nodes), bias))
        result: torch.Tensor = nodes + self.dropout(self.mlp(self.mlp_norm(nodes)))
        return result
