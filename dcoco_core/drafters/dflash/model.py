"""The DFlash network: published tensor names, one forward for training and drafting.

Context rows (projected target states) enter as keys and values only; block rows are the
queries. Training packs many blocks over one context, drafting runs one block per row over a
cache: both call `DFlashModel.forward` and differ in how they attend.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import nn
from torch.nn import functional as F

from dcoco_core.drafters.dflash.config import DFlashConfig


class KeyValue(NamedTuple):
    """Context keys (normed and rotated) and values of one layer, each [R, kv_heads, T, hd]."""

    keys: torch.Tensor
    values: torch.Tensor


class Attend(Protocol):
    """Mixes values for block rows, over the context it knows and the block itself."""

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Queries [R, heads, Q, hd], keys and values [R, kv_heads, Q, hd], all of the block."""
        ...


class PackedAttend:
    """Attention with explicit masks over explicit context, as training packs it.

    Args:
        context: one KeyValue per layer, T columns.
        masks: one bool mask per layer, [R, 1, Q, T + Q]; True where the key is seen.
    """

    def __init__(self, context: list[KeyValue], masks: list[torch.Tensor]) -> None:
        self._context, self._masks = context, masks

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See Attend."""
        context = self._context[layer]
        return F.scaled_dot_product_attention(
            queries,
            torch.cat([context.keys.to(keys.dtype), keys], dim=-2),
            torch.cat([context.values.to(values.dtype), values], dim=-2),
            attn_mask=self._masks[layer],
            enable_gqa=True,
        )


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalises [..., size]."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight.float()).to(x.dtype)


class Rotary(NamedTuple):
    """Cosines and sines of a set of positions, each [..., 1, T, head_dim], half-split layout."""

    cos: torch.Tensor
    sin: torch.Tensor

    @classmethod
    def at(cls, positions: torch.Tensor, head_dim: int, theta: float) -> Rotary:
        """Angles in float32 for integer positions [..., T]; a head axis is put before T."""
        exponents = torch.arange(0, head_dim, 2, device=positions.device) / head_dim
        angles = positions[..., None].float() * theta**-exponents
        angles = torch.cat([angles, angles], dim=-1).unsqueeze(-3)
        return cls(angles.cos(), angles.sin())

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Rotates [..., heads, T, head_dim]."""
        first, second = x.float().chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        return (x.float() * self.cos + turned * self.sin).to(x.dtype)


class Attention(nn.Module):
    """Block rows attend to context and block; keys and values of both share their projections."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.num_kv_heads, self.head_dim = config.num_kv_heads, config.head_dim
        width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """[..., T, heads * head_dim] to [..., heads, T, head_dim]."""
        return x.view(*x.shape[:-1], -1, self.head_dim).transpose(-2, -3)

    def forward(self, x: torch.Tensor, rotary: Rotary, attend: Attend, layer: int) -> torch.Tensor:
        """[R, Q, H] to [R, Q, H]."""
        queries = rotary.rotate(self.q_norm(self.heads(self.q_proj(x))))
        keys = rotary.rotate(self.k_norm(self.heads(self.k_proj(x))))
        mixed = attend(layer, queries, keys, self.heads(self.v_proj(x)))
        output: torch.Tensor = self.o_proj(mixed.transpose(-2, -3).flatten(-2))
        return output


class GatedMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., H] to [..., H]."""
        output: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return output


class Layer(nn.Module):
    """One pre-norm decoder layer over block rows."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(config)

    def forward(self, x: torch.Tensor, rotary: Rotary, attend: Attend, layer: int) -> torch.Tensor:
        """[R, Q, H] to [R, Q, H]."""
        x = x + self.self_attn(self.input_layernorm(x), rotary, attend, layer)
        added: torch.Tensor = self.mlp(self.post_attention_layernorm(x))
        return x + added


class DFlashModel(nn.Module):
    """fc, hidden_norm, layers, norm. Embedding and head belong to the target."""

    def __init__(self, config: DFlashConfig, target_hidden_size: int) -> None:
        super().__init__()
        self.config = config
        width = len(config.target_layer_ids) * target_hidden_size
        self.fc = nn.Linear(width, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def project(self, taps: torch.Tensor) -> torch.Tensor:
        """Target taps [..., n * H_target] to context rows [..., H]."""
        rows: torch.Tensor = self.hidden_norm(self.fc(taps))
        return rows

    def context_weight(self) -> torch.Tensor:
        """Key and value projections of all layers stacked, [2 * layers * kv_heads * hd, H]."""
        layers = [self._attention(i) for i in range(self.config.num_layers)]
        return torch.cat([w for a in layers for w in (a.k_proj.weight, a.v_proj.weight)])

    def context_keys_values(
        self, products: torch.Tensor, positions: torch.Tensor
    ) -> list[KeyValue]:
        """Keys and values of every layer from one product over all layers.

        Context rows do not pass through input_layernorm.

        Args:
            products: context rows times context_weight(), [..., T, 2 * layers * kv_heads * hd].
            positions: [..., T], true positions in the sequence.
        """
        layers = [self._attention(i) for i in range(self.config.num_layers)]
        parts = products.chunk(2 * len(layers), dim=-1)
        rotary = self.rotary(positions)
        return [
            KeyValue(rotary.rotate(a.k_norm(a.heads(parts[2 * i]))), a.heads(parts[2 * i + 1]))
            for i, a in enumerate(layers)
        ]

    def _attention(self, layer: int) -> Attention:
        attention = self.layers[layer].self_attn
        assert isinstance(attention, Attention)
        return attention

    def rotary(self, positions: torch.Tensor) -> Rotary:
        """The rotation at integer positions [..., T]."""
        return Rotary.at(positions, self.config.head_dim, self.config.rope_theta)

    def forward(
        self, embedded: torch.Tensor, positions: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        """Final-normed states [R, Q, H] of block rows.

        Args:
            embedded: [R, Q, H], the target's embeddings of anchor and mask tokens.
            positions: [R, Q], true positions in the sequence.
            attend: what the block rows see.
        """
        x = embedded * self.config.input_embedding_scale
        rotary = self.rotary(positions)
        for number, layer in enumerate(self.layers):
            x = layer(x, rotary, attend, number)
        states: torch.Tensor = self.norm(x)
        return states
