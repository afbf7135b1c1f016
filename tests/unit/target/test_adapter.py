"""Other architectures through transformers: equality, rollback, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PretrainedConfig,
)

from dcoco_core.errors import CheckpointError, ConfigError
from dcoco_core.target.adapter import AdaptedTarget
from dcoco_core.target.interface import PackedRows
from dcoco_core.target.loading import load_target
from tests.unit.target.tiny_models import SIZES, random_ids, save_tiny

WINDOWED = {**SIZES, "num_key_value_heads": 2, "sliding_window": 8}
CONFIGS = {
    "gemma3": Gemma3TextConfig(
        **WINDOWED,
        head_dim=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "gemma2": Gemma2Config(**WINDOWED, head_dim=8),
    "gpt_neox": GPTNeoXConfig(**SIZES),
    "windowed mistral": MistralConfig(**WINDOWED),
    "mlp bias": LlamaConfig(**SIZES, num_key_value_heads=2, mlp_bias=True),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_decodes_as_generate_does(name: str, tmp_path: Path) -> None:
    """Greedy text token by token, a wrong draft rolled back before each token."""
    model = save_tiny(CONFIGS[name], tmp_path)
    target = load_target(tmp_path)
    assert isinstance(target, AdaptedTarget)
    prompt, other = random_ids(20), random_ids(9, seed=3)
    with torch.inference_mode():
        expected = model.generate(
            prompt.unsqueeze(0),
            attention_mask=torch.ones(1, 20),  # or it would mask the padding id in the prompt
            max_new_tokens=12,
            min_new_tokens=12,
            do_sample=False,
        )[0]
    cache = target.new_cache(num_slots=2, max_length=64)
    target.forward(other, PackedRows((0,), (0,), (9,)), cache, ())
    tokens = prompt
    pending = prompt
    for _ in range(12):
        start = len(tokens) - len(pending)
        draft = random_ids(4, seed=start)
        output = target.forward(
            torch.cat((other[5:9], pending, draft)),
            PackedRows((0, 1), (5, start), (4, len(pending) + 4)),
            cache,
            (),
        )
        logits = target.logits(output.hidden)[4 + len(pending) - 1].clone()
        logits[2] = -torch.inf  # as min_new_tokens does to the end-of-text token
        pending = logits.argmax().unsqueeze(0)
        tokens = torch.cat((tokens, pending))
    assert torch.equal(tokens, expected)


@pytest.mark.parametrize("name", CONFIGS)
def test_taps_are_block_outputs(name: str, tmp_path: Path) -> None:
    model = save_tiny(CONFIGS[name], tmp_path)
    target = load_target(tmp_path)
    ids = random_ids(30)
    with torch.inference_mode():
        states = model(input_ids=ids.unsqueeze(0), output_hidden_states=True).hidden_states
    cache = target.new_cache(1, 64)
    first = target.forward(ids[:20], PackedRows((0,), (0,), (20,)), cache, (1, 0))
    rest = target.forward(ids[20:], PackedRows((0,), (20,), (10,)), cache, (1, 0))
    taps = torch.cat((first.taps, rest.taps))
    expected = torch.cat((states[2][0], states[1][0]), dim=-1)
    torch.testing.assert_close(taps, expected, atol=1e-4, rtol=1e-4)
    assert target.embedding.shape == (120, 48)
    assert target.lm_head.shape == (120, 48)
    assert target.spec.num_layers == 3


def test_cache_bounds(tmp_path: Path) -> None:
    save_tiny(CONFIGS["gpt_neox"], tmp_path)
    target = load_target(tmp_path)
    cache = target.new_cache(1, 8)
    for rows, message in (
        (PackedRows((1,), (0,), (3,)), "outside the cache"),
        (PackedRows((0,), (6,), (3,)), "outside the cache"),
        (PackedRows((0,), (2,), (3,)), "holds 0 positions, tokens start at 2"),
        (PackedRows((0,), (0,), (2,)), "3 tokens for rows"),
    ):
        with pytest.raises(ValueError, match=message):
            target.forward(random_ids(3), rows, cache, ())


REFUSED: dict[str, PretrainedConfig] = {
    "recurrent state": MambaConfig(vocab_size=120, hidden_size=48, num_hidden_layers=2),
    "scaled logits": GraniteConfig(**SIZES, num_key_value_heads=2, logits_scaling=3.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_it_cannot_compute(name: str, tmp_path: Path) -> None:
    save_tiny(REFUSED[name], tmp_path)
    with pytest.raises(CheckpointError, match="cannot be a target"):
        load_target(tmp_path)


def test_exact_numerics_are_not_offered(tmp_path: Path) -> None:
    save_tiny(CONFIGS["gpt_neox"], tmp_path)
    with pytest.raises(ConfigError, match=r"a GPTNeoXForCausalLM\. Use 'fast'"):
        load_target(tmp_path, numerics="exact")


@pytest.mark.parametrize(
    ("option", "message"),
    [({"dtype": "bf16"}, "unknown dtype 'bf16'"), ({"numerics": "exakt"}, "Did you mean 'exact'")],
)
def test_unknown_options(option: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_target(tmp_path, **option)
