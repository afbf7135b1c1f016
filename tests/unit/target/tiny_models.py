"""Tiny random models of several architectures, saved as Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

SIZES: dict[str, Any] = {
    "vocab_size": 120,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def save_tiny(config: PretrainedConfig, folder: Path) -> Any:
    """Saves a random model of this config, with a tokenizer of ids; returns the model."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Large enough for far-apart logits, and norms and biases that matter.
            is_norm = "norm" in name
            parameter.copy_(torch.randn_like(parameter) * 0.15 + (1.0 if is_norm else 0.0))
    model.save_pretrained(folder)
    save_tokenizer(folder, config.vocab_size)
    return model


def save_tokenizer(folder: Path, vocab_size: int) -> None:
    """A word-level tokenizer whose words are t0, t1, ..."""
    vocab = {f"t{token_id}": token_id for token_id in range(vocab_size)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": token_id,
                "content": f"t{token_id}",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token_id in range(4)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "t0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "t2"}))


def random_ids(count: int, vocab_size: int = SIZES["vocab_size"], seed: int = 0) -> torch.Tensor:
    """[count] token ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab_size, (count,), generator=generator)
