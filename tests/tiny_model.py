"""A random Llama with tokenizer and chat template, and a drafter and corrector for it.

Made on the fly, in a second, so that tests of whole processes need no weights.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.dcoco.checkpoint import save_dcoco
from dcoco_core.correctors.dcoco.scorer import PairScorer, ScorerConfig
from dcoco_core.drafters.dflash.checkpoint import (
    fingerprint_target,
    save_checkpoint,
)
from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.model import DFlashModel
from dcoco_core.drafters.fingerprint import fingerprint_checkpoint
from dcoco_core.target.tables import load_tables

HIDDEN_SIZE, HEAD_DIM, MLP_SIZE, NUM_LAYERS, VOCAB_SIZE = 32, 8, 64, 4, 260
EOS, MASK = 257, 258
_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def write_target(folder: Path) -> Path:
    """A target over bytes: 256 of them, then bos, eos and the drafter's mask token."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": MLP_SIZE,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": HIDDEN_SIZE // HEAD_DIM,
        "num_key_value_heads": 2,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 256,
        "eos_token_id": EOS,
        "dtype": "float32",
    }
    _write_json(folder / "config.json", config)
    save_file(_weights(), folder / "model.safetensors", metadata={"format": "pt"})
    _tokenizer().save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {"bos_token": "<bos>", "eos_token": "<eos>", "chat_template": _TEMPLATE},
    )
    return folder


def write_drafter(folder: Path, target_folder: Path, seed: int = 1) -> Path:
    """An untrained DFlash drafter of up to 7 proposals for that target."""
    target = load_tables(target_folder)
    config = DFlashConfig(
        hidden_size=HIDDEN_SIZE,
        intermediate_size=MLP_SIZE,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=HEAD_DIM,
        vocab_size=VOCAB_SIZE,
        block_size=8,
        mask_token_id=MASK,
        target_layer_ids=(0, 2),
        num_target_layers=NUM_LAYERS,
        shift_label=True,
        target_name="tiny",
        target_fingerprint=fingerprint_target(target),
    )
    torch.manual_seed(seed)
    save_checkpoint(folder, config, dict(DFlashModel(config, HIDDEN_SIZE).state_dict()))
    return folder


def write_corrector(folder: Path, target_folder: Path, drafter_folder: Path) -> Path:
    """An untrained pair scorer for both."""
    belonging = Belonging(
        embedding_fingerprint(load_tables(target_folder).embedding),
        fingerprint_checkpoint(drafter_folder),
    )
    torch.manual_seed(2)
    scorer = PairScorer(ScorerConfig(HIDDEN_SIZE))
    torch.nn.init.normal_(scorer.mlp_out.weight)
    save_dcoco(folder, scorer, belonging)
    return folder


def _weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).div(shape[-1] ** 0.5)

    tensors = {
        "model.embed_tokens.weight": normal(VOCAB_SIZE, HIDDEN_SIZE) * HIDDEN_SIZE**0.5,
        "model.norm.weight": torch.ones(HIDDEN_SIZE),
    }
    for layer in range(NUM_LAYERS):
        prefix = f"model.layers.{layer}"
        tensors |= {
            f"{prefix}.input_layernorm.weight": torch.ones(HIDDEN_SIZE),
            f"{prefix}.post_attention_layernorm.weight": torch.ones(HIDDEN_SIZE),
            f"{prefix}.self_attn.q_proj.weight": normal(HIDDEN_SIZE, HIDDEN_SIZE),
            f"{prefix}.self_attn.k_proj.weight": normal(2 * HEAD_DIM, HIDDEN_SIZE),
            f"{prefix}.self_attn.v_proj.weight": normal(2 * HEAD_DIM, HIDDEN_SIZE),
            f"{prefix}.self_attn.o_proj.weight": normal(HIDDEN_SIZE, HIDDEN_SIZE),
            f"{prefix}.mlp.gate_proj.weight": normal(MLP_SIZE, HIDDEN_SIZE),
            f"{prefix}.mlp.up_proj.weight": normal(MLP_SIZE, HIDDEN_SIZE),
            f"{prefix}.mlp.down_proj.weight": normal(HIDDEN_SIZE, MLP_SIZE),
        }
    return tensors


def _tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<bos>", "<eos>", "<mask>"]
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    return tokenizer


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
