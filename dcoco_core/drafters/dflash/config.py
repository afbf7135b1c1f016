"""The settings of a DFlash checkpoint, read from and written to the published config.json.

Published files put the drafter's own keys into `dflash_config` or, in older ones, at the top
level; every such key is looked up in that order. Keys of ours (`target_name`,
`target_fingerprint`, `chat_fingerprint`) are optional, so that foreign checkpoints load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dcoco_core.drafters.dflash.config_reader import ConfigReader
from dcoco_core.drafters.dflash.patterns import AttentionPattern
from dcoco_core.errors import CheckpointError, ConfigError

_SAMPLES_FROM_ANCHOR = ("Qwen3DSparkModel", "DSparkDraftModel")


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """A DFlash network.

    `block_size` counts the anchor. With `shift_label` the output at place k of the block predicts
    the token at place k + 1 ("anchor predicts"); without it, the token at place k itself, and the
    anchor's own output is unused. `samples_all` tells the shifted checkpoints that propose
    block_size tokens (DSpark) from those that propose block_size - 1.
    """

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    shift_label: bool
    samples_all: bool = False
    draft_vocab_size: int | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    max_positions: int = 32768
    attention: tuple[AttentionPattern, ...] = ()
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    target_name: str | None = None
    target_fingerprint: str | None = None
    chat_fingerprint: str | None = None

    @property
    def max_draft_tokens(self) -> int:
        """The most tokens one pass can propose."""
        return self.block_size if self.samples_all else self.block_size - 1

    def num_inputs(self, num_draft_tokens: int) -> int:
        """Block rows (anchor included) the network runs to propose `num_draft_tokens`."""
        return num_draft_tokens if self.shift_label else num_draft_tokens + 1

    def pattern(self, layer: int) -> AttentionPattern:
        """The attention pattern of a layer; everything sees everything unless the file says so."""
        return self.attention[layer] if self.attention else AttentionPattern()

    def with_block_size(self, block_size: int) -> DFlashConfig:
        """The same network asked for other blocks than it was trained with.

        Raises:
            ConfigError: if `block_size` leaves nothing to propose.
        """
        if block_size < 2:
            raise ConfigError(
                f"block_size must be at least 2 (anchor and a proposal): {block_size}"
            )
        return replace(self, block_size=block_size)

    @classmethod
    def load(cls, folder: Path) -> DFlashConfig:
        """Reads folder/config.json; CheckpointError if it is missing, damaged or not DFlash."""
        path = folder / "config.json"
        try:
            data = json.loads(path.read_text())
        except FileNotFoundError:
            raise CheckpointError(f"no drafter checkpoint at {folder}: {path} is missing") from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CheckpointError(f"{path} is not readable JSON: {error}") from error
        if not isinstance(data, dict):
            raise CheckpointError(f"{path} must hold a JSON object, not {type(data).__name__}")
        return cls.from_json(data, source=str(path))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], source: str = "config.json") -> DFlashConfig:
        """Reads the published format; `source` names the file in errors."""
        read = ConfigReader(data, source)
        architectures = data.get("architectures") or [""]
        samples_all = architectures[0] in _SAMPLES_FROM_ANCHOR
        num_heads = read.integer("num_attention_heads")
        hidden_size = read.integer("hidden_size")
        config = cls(
            hidden_size=hidden_size,
            intermediate_size=read.integer("intermediate_size"),
            num_layers=read.integer("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=read.integer("num_key_value_heads", num_heads),
            head_dim=read.integer("head_dim", hidden_size // num_heads),
            vocab_size=read.integer("vocab_size"),
            block_size=read.integer("block_size"),
            mask_token_id=read.integer("mask_token_id"),
            target_layer_ids=read.layer_ids(),
            num_target_layers=read.integer("num_target_layers"),
            shift_label=read.flag("shift_label", read.flag("sample_from_anchor", samples_all)),
            samples_all=read.flag("samples_all", samples_all),
            draft_vocab_size=read.optional_integer("draft_vocab_size"),
            rms_norm_eps=read.number("rms_norm_eps", 1e-6),
            rope_theta=read.rope_theta(),
            max_positions=read.integer("max_position_embeddings", 32768),
            attention=read.attention(),
            input_embedding_scale=read.number("input_embedding_scale", 1.0),
            output_multiplier=read.number("output_multiplier", 1.0),
            final_logit_softcapping=read.optional_number("final_logit_softcapping"),
            target_name=read.text("target_name"),
            target_fingerprint=read.text("target_fingerprint"),
            chat_fingerprint=read.text("chat_fingerprint"),
        )
        config._check(source)
        return config

    def _check(self, source: str) -> None:
        problems = []
        if self.block_size < 2:
            problems.append(f"block_size {self.block_size} is below 2")
        if self.num_heads % self.num_kv_heads:
            problems.append(f"{self.num_heads} heads do not share {self.num_kv_heads} KV heads")
        if not 0 <= self.mask_token_id < self.vocab_size:
            problems.append(f"mask_token_id {self.mask_token_id} is outside the vocabulary")
        if self.samples_all and not self.shift_label:
            problems.append("an architecture that samples from the anchor needs shift_label true")
        outside = [i for i in self.target_layer_ids if not 0 <= i < self.num_target_layers - 1]
        if outside or not self.target_layer_ids:
            problems.append(
                f"target_layer_ids {list(self.target_layer_ids)} must name blocks 0 to "
                f"{self.num_target_layers - 2} (the last block's output is final-normed)"
            )
        if problems:
            raise CheckpointError(f"{source}: " + "; ".join(problems))

    def to_json(self) -> dict[str, Any]:
        """The published format, explicit about every setting that changes the result."""
        windows = {p.window for p in self.attention if p.window is not None}
        kinds = [
            "full_attention" if p.window is None else "sliding_attention" for p in self.attention
        ]
        own: dict[str, Any] = {
            "mask_token_id": self.mask_token_id,
            "target_layer_ids": list(self.target_layer_ids),
            "num_target_layers": self.num_target_layers,
            "block_size": self.block_size,
            "shift_label": self.shift_label,
            "causal": any(p.is_causal for p in self.attention),
            "input_embedding_scale": self.input_embedding_scale,
            "output_multiplier": self.output_multiplier,
            "final_logit_softcapping": self.final_logit_softcapping,
            "target_name": self.target_name,
            "target_fingerprint": self.target_fingerprint,
            "chat_fingerprint": self.chat_fingerprint,
        }
        if windows:
            own["swa_window_size"] = windows.pop()
        data: dict[str, Any] = {
            "architectures": [_SAMPLES_FROM_ANCHOR[1] if self.samples_all else "DFlashDraftModel"],
            "model_type": "qwen3",
            "block_size": self.block_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "draft_vocab_size": self.draft_vocab_size,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "max_position_embeddings": self.max_positions,
            "num_target_layers": self.num_target_layers,
            "attention_bias": False,
            "tie_word_embeddings": False,
            "layer_types": kinds or ["full_attention"] * self.num_layers,
            "dtype": "bfloat16",
            "dflash_config": {key: value for key, value in own.items() if value is not None},
        }
        return {key: value for key, value in data.items() if value is not None}
