"""One fused forward for the Llama family: Llama, Mistral, Qwen2 (biases), Qwen3 (q and k norms)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional

from dcoco_core.errors import CheckpointError
from dcoco_core.kv_cache import CacheShape, SlotCache
from dcoco_core.target.attention import (
    KEY_TILE,
    Attention,
    ExactAttention,
    HostAttention,
    PackedIndex,
    PaddedAttention,
)
from dcoco_core.target.interface import PackedRows, TargetOutput, TargetSpec
from dcoco_core.target.linear import EXACT_MIN_ROWS, Linear, Numerics
from dcoco_core.target.llama_config import LlamaConfig, rope_tables
from dcoco_core.target.llama_layer import LlamaLayer, Rotation, load_layer, rms_norm
from dcoco_core.target.weights import CheckpointTensors

EMBEDDING = "model.embed_tokens.weight"
LM_HEAD = "lm_head.weight"


class LlamaTarget:
    """A Llama-family TargetModel; its cache is a SlotCache."""

    def __init__(
        self,
        config: LlamaConfig,
        tensors: CheckpointTensors,
        *,
        name: str,
        numerics: Numerics = "fast",
    ) -> None:
        self._config = config
        self._is_exact = numerics == "exact"
        self._spec = TargetSpec(
            name=name,
            architecture=config.architecture,
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            vocab_size=config.vocab_size,
            max_positions=config.max_positions,
        )
        table = (config.vocab_size, config.hidden_size)
        self._embedding = tensors.take(EMBEDDING, *table)
        is_tied = LM_HEAD not in tensors
        if is_tied and not config.ties_embeddings:
            raise CheckpointError(f"{name} has no tensor {LM_HEAD!r}, and config.json does not tie")
        head = self._embedding if is_tied else tensors.take(LM_HEAD, *table)
        self._head = Linear(head, numerics=numerics)
        self._norm = tensors.take("model.norm.weight", config.hidden_size)
        self._layers: tuple[LlamaLayer, ...] = tuple(
            load_layer(config, tensors, index, numerics) for index in range(config.num_layers)
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
        """Output projection, [vocab_size, H]; the same tensor as `embedding` when tied."""
        return self._head.weight

    def new_cache(self, num_slots: int, max_length: int) -> SlotCache:
        """A zeroed slot cache on the model's device, in its dtype."""
        config = self._config
        if self._is_exact:  # whole key tiles
            max_length = -(-max_length // KEY_TILE) * KEY_TILE
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
        """Runs the packed tokens of several rows; taps are block outputs before the final norm.

        Raises:
            ValueError: the rows do not fit the tokens, the cache or the model.
        """
        self._check(token_ids, rows, cache, tap_layer_ids)
        device = self._embedding.device
        index = PackedIndex(rows, device)
        attention = self._attention(rows, index, cache)
        num_tokens = token_ids.shape[0]
        padding = -num_tokens % EXACT_MIN_ROWS if self._is_exact else 0
        positions = functional.pad(index.positions, (0, padding))
        rotation = Rotation(self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1))
        x = self._embedding[functional.pad(token_ids.to(device), (0, padding))]
        tapped: dict[int, torch.Tensor] = {}
        for number, layer in enumerate(self._layers):
            x = x + layer.attend(x, rotation, attention, number)
            x = x + layer.transform(x)
            if number in tap_layer_ids:
                tapped[number] = x
        taps = [tapped[number] for number in tap_layer_ids]
        joined = torch.cat(taps, dim=-1) if taps else x.new_empty(x.shape[0], 0)
        hidden = rms_norm(x, self._norm, self._config.norm_eps)
        return TargetOutput(hidden=hidden[:num_tokens], taps=joined[:num_tokens])

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[M, H] final-normed states to [M, vocab_size] float32 logits."""
        return self._head(hidden).float()

    def _attention(self, rows: PackedRows, index: PackedIndex, cache: SlotCache) -> Attention:
        if self._is_exact:
            return ExactAttention(rows, index, cache)
        if self._embedding.device.type == "cpu":
            return HostAttention(rows, index, cache)
        return PaddedAttention(rows, index, cache)

    def _check(
        self,
        token_ids: torch.Tensor,
        rows: PackedRows,
        cache: SlotCache,
        tap_layer_ids: tuple[int, ...],
    ) -> None:
        if sum(rows.counts) != token_ids.shape[0] or not rows.counts:
            raise ValueError(f"{token_ids.shape[0]} tokens for rows of {list(rows.counts)}")
        for slot, start, count in zip(rows.slots, rows.starts, rows.counts, strict=True):
            cache.check_bounds(slot, start, start + count)
            if count < 1 or start + count > self._config.max_positions:
                raise ValueError(
                    f"{count} tokens from position {start} on: need 1 or more tokens and at most "
                    f"{self._config.max_positions} positions"
                )
        if not all(0 <= number < self._config.num_layers for number in tap_layer_ids):
            raise ValueError(f"tap layers {tap_layer_ids} of {self._config.num_layers} layers")


def load_llama(
    folder: Path,
    config: LlamaConfig,
    *,
    dtype: torch.dtype,
    device: str,
    numerics: Numerics,
) -> LlamaTarget:
    """Loads a folder's weights. Raises CheckpointError for missing or misshapen tensors."""
    tensors = CheckpointTensors(folder, dtype=dtype, device=device)
    return LlamaTarget(config, tensors, name=folder.name, numerics=numerics)
