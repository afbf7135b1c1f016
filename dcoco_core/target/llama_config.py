"""What the fused forward needs of a Llama-family config.json, and whether it covers the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dcoco_core.errors import CheckpointError

FUSED_ARCHITECTURES = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)
FUSED_ROPE_TYPES = frozenset({"default", "linear", "llama3"})


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes and constants of a Llama-family model."""

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    norm_eps: float
    ties_embeddings: bool
    rope: Mapping[str, object]  # rope_type, rope_theta and the type's own values

    @classmethod
    def from_json(cls, config: Mapping[str, object]) -> LlamaConfig:
        """Reads config.json, in transformers' form of before and after version 5.

        Raises:
            CheckpointError: a size is missing or no number.
        """
        hidden_size = _integer(config, "hidden_size")
        num_heads = _integer(config, "num_attention_heads")
        return cls(
            architecture=architecture_of(config),
            hidden_size=hidden_size,
            intermediate_size=_integer(config, "intermediate_size"),
            num_layers=_integer(config, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=_integer(config, "num_key_value_heads", default=num_heads),
            head_dim=_integer(config, "head_dim", default=hidden_size // num_heads),
            vocab_size=_integer(config, "vocab_size"),
            max_positions=_integer(config, "max_position_embeddings", default=2048),
            norm_eps=_number(config, "rms_norm_eps", default=1e-6),
            ties_embeddings=config.get("tie_word_embeddings", True) is not False,
            rope=_rope_parameters(config),
        )


def architecture_of(config: Mapping[str, object]) -> str:
    """The class name config.json gives for the model; "" if it gives none."""
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        return str(architectures[0])
    return ""


def is_fused(config: Mapping[str, object]) -> bool:
    """Whether the fused forward computes exactly this model; if not, the adapter has to."""
    layer_types = config.get("layer_types")
    full_attention = not isinstance(layer_types, list) or set(layer_types) == {"full_attention"}
    window = config.get("sliding_window")
    windowed = isinstance(window, int) and config.get("use_sliding_window", True) is not False
    return (
        architecture_of(config) in FUSED_ARCHITECTURES
        and config.get("hidden_act", "silu") == "silu"
        and not config.get("mlp_bias", False)
        and full_attention
        and not windowed
        and _rope_parameters(config)["rope_type"] in FUSED_ROPE_TYPES
    )


def rope_tables(config: LlamaConfig, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, each [num_positions, head_dim] float32; sin's first half is negated.

    With the sign in the table, rotating is x * cos + roll(x, head_dim / 2) * sin.
    """
    inverse = _inverse_frequencies(config)
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), inverse)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _inverse_frequencies(config: LlamaConfig) -> torch.Tensor:
    """[head_dim / 2]; scaled as Llama 3.1 does where the config says so."""
    theta = _number(config.rope, "rope_theta", default=10_000.0)
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    inverse = 1.0 / (theta**steps)
    rope_type = config.rope["rope_type"]
    if rope_type == "default":
        return inverse
    factor = _number(config.rope, "factor")
    if rope_type == "linear":
        return inverse / factor
    low = _number(config.rope, "low_freq_factor")
    high = _number(config.rope, "high_freq_factor")
    original = _number(config.rope, "original_max_position_embeddings")
    # Long wavelengths are stretched by `factor`, short ones kept, those between interpolated.
    rotations = original * inverse / (2 * math.pi)
    kept = ((rotations - low) / (high - low)).clamp(0.0, 1.0)
    return (1.0 - kept) * inverse / factor + kept * inverse


def _rope_parameters(config: Mapping[str, object]) -> dict[str, object]:
    """`rope_parameters` (transformers 5), or `rope_scaling` and `rope_theta` (before)."""
    nested = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(nested, Mapping):
        raise CheckpointError("config.json: rope_parameters is no object")
    rope = dict(nested)
    rope.setdefault("rope_type", rope.get("type", "default"))
    if "rope_theta" not in rope and "rope_theta" in config:
        rope["rope_theta"] = config["rope_theta"]
    return rope


def _number(config: Mapping[str, object], key: str, *, default: float | None = None) -> float:
    value = config.get(key)
    if value is None:
        value = default
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise CheckpointError(f"config.json: {key} must be a number, got {value!r}")
    return float(value)


def _integer(config: Mapping[str, object], key: str, *, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise CheckpointError(f"config.json: {key} must be a positive integer, got {value!r}")
    return value
