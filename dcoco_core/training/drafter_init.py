"""A drafter's starting weights, taken from the target's last layers.

The target is a Llama-family model, whose layers lack the drafter's query and key norms. With
fc passing on the last tap and the layer norms folded into the projections, the drafter's context
keys start as exactly the target's own keys (up to their length, which the norms fix).
"""

from __future__ import annotations

import torch

from dcoco_core.drafters.dflash.model import Attention, DFlashModel, GatedMLP, Layer
from dcoco_core.target.llama_config import LlamaConfig
from dcoco_core.target.weights import CheckpointTensors


@torch.no_grad()
def initialise_from_target(
    model: DFlashModel,
    target: LlamaConfig,
    tensors: CheckpointTensors,
    sample_taps: torch.Tensor,
) -> None:
    """Copies the target's last `num_layers` layers into the drafter.

    Args:
        model: the drafter; its heads must have the target's sizes, its MLP may be narrower.
        target: the target's sizes.
        tensors: the target's weights.
        sample_taps: [N, n * H] recorded taps, to measure how long keys and queries are.
    """
    hidden = target.hidden_size
    model.fc.weight.zero_()
    model.fc.weight[:, -hidden:].copy_(torch.eye(hidden))
    model.norm.weight.copy_(tensors.take("model.norm.weight", hidden))
    rows = model.project(sample_taps.float())
    first = target.num_layers - model.config.num_layers
    for number, layer in enumerate(model.layers, first):
        assert isinstance(layer, Layer)
        _copy_attention(layer.self_attn, target, tensors, number, rows)
        _copy_mlp(layer.mlp, target, tensors, number)


def _copy_attention(
    attention: Attention,
    target: LlamaConfig,
    tensors: CheckpointTensors,
    number: int,
    rows: torch.Tensor,
) -> None:
    name, hidden = f"model.layers.{number}", target.hidden_size
    width, kv_width = target.num_heads * target.head_dim, target.num_kv_heads * target.head_dim
    scale = tensors.take(f"{name}.input_layernorm.weight", hidden)
    for projection, kind, size in (
        (attention.q_proj, "q", width),
        (attention.k_proj, "k", kv_width),
        (attention.v_proj, "v", kv_width),
    ):
        weight = tensors.take(f"{name}.self_attn.{kind}_proj.weight", size, hidden)
        projection.weight.copy_(weight * scale)
    attention.o_proj.weight.copy_(tensors.take(f"{name}.self_attn.o_proj.weight", hidden, width))
    for norm, projection in (
        (attention.q_norm, attention.q_proj),
        (attention.k_norm, attention.k_proj),
    ):
        heads = attention.heads(projection(rows))
        norm.weight.fill_(float(heads.square().mean(-1).sqrt().mean()))


def _copy_mlp(mlp: GatedMLP, target: LlamaConfig, tensors: CheckpointTensors, number: int) -> None:
    """The strongest neurons, when the drafter's MLP is narrower than the target's."""
    name, shape = f"model.layers.{number}", (target.intermediate_size, target.hidden_size)
    scale = tensors.take(f"{name}.post_attention_layernorm.weight", target.hidden_size)
    gate = tensors.take(f"{name}.mlp.gate_proj.weight", *shape) * scale
    up = tensors.take(f"{name}.mlp.up_proj.weight", *shape) * scale
    down = tensors.take(f"{name}.mlp.down_proj.weight", *shape[::-1])
    strength = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
    kept = strength.topk(mlp.gate_proj.out_features).indices.sort().values
    mlp.gate_proj.weight.copy_(gate[kept])
    mlp.up_proj.weight.copy_(up[kept])
    mlp.down_proj.weight.copy_(down[:, kept])
