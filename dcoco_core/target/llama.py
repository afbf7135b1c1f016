"""One fused forward for the Llama family: Llama, Mistral, Qwen2 (biases), Qwen3 (q/k norms)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from dcoco_core.kv_cache import CacheShape, SlotCache
from dcoco_core.target.interface import PackedRows, TargetOutput, TargetSpec
from dcoco_core.target.linear import Linear, Numerics
from dcoco_core.target.llama_config import LlamaConfig, rope_tables
from dcoco_core.target.weights import CheckpointTensors


@dataclass(frozen=True, slots=True)
class LlamaLayer:
    """The weights of one block, fused where they share an input."""

    input_norm: torch.Tensor
    qkv: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class LlamaTarget:
    """A Llama-family TargetModel."""

    def __init__(
        self,
        config: LlamaConfig,
        tensors: CheckpointTensors,
        *,
        name: str,
        numerics: Numerics = "fast",
    ) -> None:
        self._config = config
        self._numerics: Numerics = numerics
        self._spec = TargetSpec(
            name=name,
            architecture=config.architecture,
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            vocab_size=config.vocab_size,
            max_positions=config.max_positions,
        )
        head_shape = (config.vocab_size, config.hidden_size)
        self._embedding = tensors.take("model.embed_tokens.weight", *head_shape)
        tied = "lm_head.weight" not in tensors
        head = self._embedding if tied else tensors.take("lm_head.weight", *head_shape)
        self._head = Linear(head, numerics=numerics)
        self._norm = tensors.take("model.norm.weight", config.hidden_size)
        self._layers = tuple(
            _load_layer(config, tensors, index, numerics) for index in range(config.num_layers)
        )
        cos, sin = rope_tables(config, config.max_positions)
        self._cos, self._sin = cos.to(self._embedding), sin.to(self._embedding)

    @property
    def spec(self) -> TargetSpec:
        """The facts about this target."""
        return self._spec

    @property
    def embedding(self) -> torch.Tensor:
        """Input embedding table, [vocab_size, H]."""
        return self._embedding

    @property
    def lm_head(self) -> torch.Tensor:
        """Output projection, [vocab_size, H]."""
        return self._head.weight

    def new_cache(self, num_slots: int, max_length: int) -> SlotCache:
        """A zeroed slot cache on the model's device, in its dtype."""
        config = self._config
        shape = CacheShape(
            num_layers=config.num_layers,
            num_slots=num_slots,
            num_kv_heads=config.num_kv_heads,
            max_length=max_length,
            head_dim=config.head_dim,
        )
        return SlotCache(shape, dtype=self._embedding.dtype, device=self._embedding.device)

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        rows: PackedRows,
        cache: SlotCache,
        tap_layer_ids: tuple[int, ...],
    ) -> TargetOutput:
        """Runs the packed tokens of several rows; taps are block outputs before the final norm."""
        positions = torch.cat(
            [
                torch.arange(start, start + count)
                for start, count in zip(rows.starts, rows.counts, strict=True)
            ]
        )
        cos = self._cos[positions].unsqueeze(1)
        sin = self._sin[positions].unsqueeze(1)
        x = self._embedding[token_ids]
        tapped: dict[int, torch.Tensor] = {}
        for index, layer in enumerate(self._layers):
            x = x + self._attention(index, layer, x, cos, sin, rows, cache)
            normed = self._rms_norm(x, layer.mlp_norm)
            gate, up = layer.gate_up(normed).chunk(2, dim=-1)
            x = x + layer.down(functional.silu(gate) * up)
            if index in tap_layer_ids:
                tapped[index] = x
        taps = [tapped[index] for index in tap_layer_ids]
        return TargetOutput(
            hidden=self._rms_norm(x, self._norm),
            taps=torch.cat(taps, dim=-1) if taps else x.new_empty(x.shape[0], 0),
        )

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[M, H] final-normed states to [M, vocab_size] float32 logits."""
        return self._head(hidden).float()

    def _rms_norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._config.norm_eps)
        return weight * (wide * scale).to(x.dtype)

    def _attention(
        self,
        index: int,
        layer: LlamaLayer,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        rows: PackedRows,
        cache: SlotCache,
    ) -> torch.Tensor:
        config = self._config
        num_rotated = config.num_heads + config.num_kv_heads
        qkv = layer.qkv(self._rms_norm(x, layer.input_norm))
        qkv = qkv.view(x.shape[0], num_rotated + config.num_kv_heads, config.head_dim)
        rotated, values = qkv[:, :num_rotated], qkv[:, num_rotated:]
        if layer.q_norm is not None and layer.k_norm is not None:
            queries = self._rms_norm(rotated[:, : config.num_heads], layer.q_norm)
            keys = self._rms_norm(rotated[:, config.num_heads :], layer.k_norm)
            rotated = torch.cat((queries, keys), dim=1)
        rotated = rotated * cos + rotated.roll(config.head_dim // 2, dims=-1) * sin
        queries, keys = rotated[:, : config.num_heads], rotated[:, config.num_heads :]
        mixed = torch.empty(x.shape[0], config.num_heads, config.head_dim, dtype=x.dtype)
        first = 0
        for slot, start, count in zip(rows.slots, rows.starts, rows.counts, strict=True):
            last = first + count
            cache.write(index, slot, start, keys[first:last], values[first:last])
            mixed[first:last] = self._attend(queries[first:last], *cache.view(index, slot, start + count))
            first = last
        return layer.output(mixed.flatten(1))

    def _attend(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """One row: queries [count, heads, d] against [kv, length, d]; the last `count` are new."""
        config = self._config
        count, length = queries.shape[0], keys.shape[1]
        group = config.num_heads // config.num_kv_heads
        grouped = queries.view(count, config.num_kv_heads, group, config.head_dim)
        grouped = grouped.permute(1, 2, 0, 3).reshape(config.num_kv_heads, -1, config.head_dim)
        scores = torch.bmm(grouped, keys.transpose(1, 2)) * config.head_dim**-0.5
        if count > 1:
            future = torch.ones(count, count, dtype=torch.bool).triu(1)
            new = scores.view(-1, group, count, length)[..., length - count :]
            new.masked_fill_(future, float("-inf"))
        mixed = torch.bmm(scores.softmax(-1), values)
        mixed = mixed.view(config.num_kv_heads, group, count, config.head_dim)
        return mixed.permute(2, 0, 1, 3).reshape(count, config.num_heads, config.head_dim)


def _load_layer(
    config: LlamaConfig, tensors: CheckpointTensors, index: int, numerics: Numerics
) -> LlamaLayer:
    prefix = f"model.layers.{index}"
    hidden, mlp = config.hidden_size, config.intermediate_size
    num_q, num_kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim

    def linear(*parts: tuple[str, int], inputs: int) -> Linear:
        """Stacks the weights (and the biases, where there are any) of projections of one input."""
        names = [(f"{prefix}.{part}", outputs) for part, outputs in parts]
        weight = torch.cat([tensors.take(f"{n}.weight", outputs, inputs) for n, outputs in names])
        biases = [
            tensors.take(f"{n}.bias", outputs) if f"{n}.bias" in tensors else weight.new_zeros(outputs)
            for n, outputs in names
        ]
        biased = any(f"{n}.bias" in tensors for n, _ in names)
        return Linear(weight, torch.cat(biases) if biased else None, numerics=numerics)

    def norm(part: str, size: int) -> torch.Tensor:
        return tensors.take(f"{prefix}.{part}.weight", size)

    has_qk_norm = f"{prefix}.self_attn.q_norm.weight" in tensors
    return LlamaLayer(
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


def load_llama(
    folder: Path,
    config: LlamaConfig,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
    numerics: Numerics,
) -> LlamaTarget:
    """Loads a folder's weights. Raises CheckpointError for missing or misshapen tensors."""
    tensors = CheckpointTensors(folder, dtype=dtype, device=device)
    return LlamaTarget(config, tensors, name=folder.name, numerics=numerics)
