"""One block of a Llama-family model: its weights, fused where they share an input."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from dcoco_core.target.attention import Attention
from dcoco_core.target.linear import Linear, Numerics
from dcoco_core.target.llama_config import LlamaConfig
from dcoco_core.target.weights import CheckpointTensors


@dataclass(frozen=True, slots=True)
class Rotation:
    """RoPE of N tokens: cos and sin, each [N, 1, head_dim]; sin's first half is negated."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Rotates [N, heads, head_dim]."""
        swapped = x.roll(x.shape[-1] // 2, dims=-1)
        return torch.addcmul(x * self.cos, swapped, self.sin)


@dataclass(frozen=True, slots=True)
class LlamaLayer:
    """The weights of one block; q and k norms only where the architecture has them."""

    config: LlamaConfig
    input_norm: torch.Tensor
    qkv: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear

    def attend(
        self, x: torch.Tensor, rotation: Rotation, attention: Attention, index: int
    ) -> torch.Tensor:
        """The attention half of the block on [N, H], without the residual."""
        config = self.config
        num_rotated = config.num_heads + config.num_kv_heads
        qkv = self.qkv(rms_norm(x, self.input_norm, config.norm_eps))
        qkv = qkv.view(x.shape[0], num_rotated + config.num_kv_heads, config.head_dim)
        unrotated = qkv[:, :num_rotated]
        if self.q_norm is not None and self.k_norm is not None:
            queries = rms_norm(qkv[:, : config.num_heads], self.q_norm, config.norm_eps)
            keys = rms_norm(qkv[:, config.num_heads : num_rotated], self.k_norm, config.norm_eps)
            unrotated = torch.cat((queries, keys), dim=1)
        rotated = rotation(unrotated)
        mixed = attention(
            index,
            rotated[:, : config.num_heads],
            rotated[:, config.num_heads :],
            qkv[:, num_rotated:],
        )
        return self.output(mixed)

    def transform(self, x: torch.Tensor) -> torch.Tensor:
        """The MLP half of the block on [N, H], without the residual."""
        gate, up = self.gate_up(rms_norm(x, self.mlp_norm, self.config.norm_eps)).chunk(2, dim=-1)
        return self.down(functional.silu(gate).mul_(up))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm over the last dimension; torch computes it in float32 for lower precisions."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def load_layer(
    config: LlamaConfig, tensors: CheckpointTensors, index: int, numerics: Numerics
) -> LlamaLayer:
    """Reads one block. Raises CheckpointError for missing or misshapen tensors."""
    prefix = f"model.layers.{index}"
    hidden, mlp = config.hidden_size, config.intermediate_size
    num_q, num_kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim

    def linear(*parts: tuple[str, int], inputs: int) -> Linear:
        """Stacks the weights, and the biases where there are any, of projections of one input."""
        names = [(f"{prefix}.{part}", outputs) for part, outputs in parts]
        weight = torch.cat([tensors.take(f"{n}.weight", outputs, inputs) for n, outputs in names])
        if not any(f"{n}.bias" in tensors for n, _ in names):
            return Linear(weight, numerics=numerics)
        biases = [
            tensors.take(f"{n}.bias", outputs)
            if f"{n}.bias" in tensors
            else weight.new_zeros(outputs)
            for n, outputs in names
        ]
        return Linear(weight, torch.cat(biases), numerics=numerics)

    def norm(part: str, size: int) -> torch.Tensor:
        return tensors.take(f"{prefix}.{part}.weight", size)

    has_qk_norm = f"{prefix}.self_attn.q_norm.weight" in tensors
    return LlamaLayer(
        config=config,
        input_norm=norm("input_layernorm", hidden),
        qkv=linear(
            ("self_attn.q_proj", num_q),
            ("self_attn.k_proj", num_kv),
            ("self_attn.v_proj", num_kv),
            inputs=hidden,
        ),
        q_norm=norm("self_attn.q_norm", config.head_dim) if has_qk_norm else None,
        k_norm=norm("self_attn.k_norm", config.head_dim) if has_qk_norm else None,
        output=linear(("self_attn.o_proj", hidden), inputs=num_q),
        mlp_norm=norm("post_attention_layernorm", hidden),
        gate_up=linear(("mlp.gate_proj", mlp), ("mlp.up_proj", mlp), inputs=hidden),
        down=linear(("mlp.down_proj", hidden), inputs=mlp),
    )
