"""A target folder in Hugging Face form: a random Llama of 64 tokens, one a character."""

from __future__ import annotations

import json
import math
import string
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Lowercase

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, MLP = 64, 32, 5, 4, 2, 48
SPECIALS = ["<unk>", "<s>", "</s>", "<mask>"]
MASK_ID = 3

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
}
TEMPLATE = "{% for m in messages %}<s> {{ m['content'] }} {% endfor %}"


def write_tiny_target(folder: Path, seed: int = 0) -> Path:
    """Writes config, weights, tokenizer and chat template; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    characters = f"{string.ascii_lowercase}{string.digits}{string.punctuation[:23]} "
    symbols = {symbol: i for i, symbol in enumerate([*SPECIALS, *characters])}
    tokenizer = Tokenizer(BPE(symbols, merges=[], unk_token="<unk>"))
    tokenizer.normalizer = Lowercase()
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(_weights(seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _weights(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) / math.sqrt(shape[-1])

    kv = KV_HEADS * HIDDEN // HEADS
    tensors = {
        # A strong table makes the next token depend on the last one, so there is much to learn.
        "model.embed_tokens.weight": matrix(VOCAB, HIDDEN) * 4,
        "model.norm.weight": torch.ones(HIDDEN),
    }
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        tensors |= {
            name + "input_layernorm.weight": torch.rand(HIDDEN, generator=generator) + 0.5,
            name + "post_attention_layernorm.weight": torch.rand(HIDDEN, generator=generator) + 0.5,
            name + "self_attn.q_proj.weight": matrix(HIDDEN, HIDDEN),
            name + "self_attn.k_proj.weight": matrix(kv, HIDDEN),
            name + "self_attn.v_proj.weight": matrix(kv, HIDDEN),
            name + "self_attn.o_proj.weight": matrix(HIDDEN, HIDDEN),
            name + "mlp.gate_proj.weight": matrix(MLP, HIDDEN),
            name + "mlp.up_proj.weight": matrix(MLP, HIDDEN),
            name + "mlp.down_proj.weight": matrix(HIDDEN, MLP),
        }
    return tensors
