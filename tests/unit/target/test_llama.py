"""The fused forward against transformers: logits and taps, rows, chunks, rollback, exactness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from dcoco_core.errors import CheckpointError
from dcoco_core.target.interface import PackedRows, TargetModel
from dcoco_core.target.llama import LlamaTarget
from dcoco_core.target.loading import load_target
from tests.unit.target.tiny_models import SIZES, random_ids, save_tiny

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}
CONFIGS = {
    "llama": LlamaConfig(**SIZES, num_key_value_heads=2),
    "no grouping": LlamaConfig(**SIZES, num_key_value_heads=6),
    "one kv head": LlamaConfig(**SIZES, num_key_value_heads=1, head_dim=16),
    "tied": LlamaConfig(**SIZES, num_key_value_heads=2, tie_word_embeddings=True),
    "attention bias": LlamaConfig(**SIZES, num_key_value_heads=2, attention_bias=True),
    "llama3 rope": LlamaConfig(**SIZES, num_key_value_heads=2, rope_parameters=LLAMA3_ROPE),
    "linear rope": LlamaConfig(**SIZES, num_key_value_heads=2, rope_parameters=LINEAR_ROPE),
    "mistral": MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=None),
    "qwen2": Qwen2Config(**SIZES, num_key_value_heads=2),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=16),
}
TAPS = (2, 0)


def expected_of(model: Any, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' logits [N, vocab] and taps [N, 2 * H] of one sequence.

    transformers norms its last hidden state, so the last block's output is caught by a hook.
    """
    kept = []
    hook = model.model.layers[-1].register_forward_hook(lambda *call: kept.append(call[2]))
    with torch.inference_mode():
        output = model(input_ids=ids.unsqueeze(0), output_hidden_states=True, use_cache=False)
    hook.remove()
    last = kept[0][0] if isinstance(kept[0], tuple) else kept[0]
    return output.logits[0], torch.cat((last[0], output.hidden_states[1][0]), dim=-1)


@pytest.mark.parametrize("name", CONFIGS)
def test_equals_transformers(name: str, tmp_path: Path) -> None:
    """One prefill, then rows of different lengths side by side, with a rollback between them."""
    config: PretrainedConfig = CONFIGS[name]
    model = save_tiny(config, tmp_path)
    target = load_target(tmp_path)
    assert isinstance(target, LlamaTarget)
    first, second = random_ids(70), random_ids(30, seed=1)
    first_logits, first_taps = expected_of(model, first)
    second_logits, second_taps = expected_of(model, second)
    cache = target.new_cache(num_slots=3, max_length=100)
    output = target.forward(first, PackedRows((2,), (0,), (70,)), cache, TAPS)
    torch.testing.assert_close(target.logits(output.hidden), first_logits, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(output.taps, first_taps, atol=1e-4, rtol=1e-5)

    target.forward(second[:20], PackedRows((0,), (0,), (20,)), cache, ())
    wrong = (second[20:29] + 1) % config.vocab_size  # a rejected draft, overwritten below
    target.forward(wrong, PackedRows((0,), (20,), (9,)), cache, ())
    output = target.forward(
        torch.cat((first[40:50], second[20:27], first[:1])),
        PackedRows(slots=(2, 0, 1), starts=(40, 20, 0), counts=(10, 7, 1)),
        cache,
        TAPS,
    )
    logits = torch.cat((first_logits[40:50], second_logits[20:27], first_logits[:1]))
    taps = torch.cat((first_taps[40:50], second_taps[20:27], first_taps[:1]))
    torch.testing.assert_close(target.logits(output.hidden), logits, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(output.taps, taps, atol=1e-4, rtol=1e-5)


def test_spec_and_tables(tiny_llama: tuple[Path, Any]) -> None:
    folder, model = tiny_llama
    target = load_target(folder)
    assert target.spec.name == folder.name
    assert target.spec.architecture == "LlamaForCausalLM"
    assert (target.spec.hidden_size, target.spec.num_layers) == (48, 3)
    assert (target.spec.vocab_size, target.spec.max_positions) == (120, 256)
    assert torch.equal(target.embedding, model.model.embed_tokens.weight)
    assert torch.equal(target.lm_head, model.lm_head.weight)


def test_no_taps_and_float32_logits(tiny_llama: tuple[Path, Any]) -> None:
    target = load_target(tiny_llama[0], dtype="bfloat16")
    cache = target.new_cache(1, 8)
    output = target.forward(random_ids(3), PackedRows((0,), (0,), (3,)), cache, ())
    assert output.taps.shape == (3, 0)
    assert output.hidden.dtype == torch.bfloat16
    assert target.logits(output.hidden).dtype == torch.float32


def test_bfloat16_is_close(tiny_llama: tuple[Path, Any]) -> None:
    folder, model = tiny_llama
    target = load_target(folder, dtype="bfloat16")
    ids = random_ids(40)
    output = target.forward(ids, PackedRows((0,), (0,), (40,)), target.new_cache(1, 40), ())
    expected, _ = expected_of(model, ids)
    error = (target.logits(output.hidden) - expected).abs().mean() / expected.abs().mean()
    assert error < 0.03


def chunked(
    target: TargetModel, ids: torch.Tensor, sizes: list[int], slot: int, cache: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and taps of one sequence, computed in chunks of these sizes."""
    logits, taps, start = [], [], 0
    for size in sizes:
        rows = PackedRows((slot,), (start,), (size,))
        output = target.forward(ids[start : start + size], rows, cache, TAPS)
        logits.append(target.logits(output.hidden))
        taps.append(output.taps)
        start += size
    return torch.cat(logits), torch.cat(taps)


@pytest.mark.parametrize("seed", range(3))
def test_exact_numerics_are_bitwise(tiny_llama: tuple[Path, Any], seed: int) -> None:
    """Chunks, blocks, single tokens and mixed batches, over stale slots: the same bits."""
    folder, model = tiny_llama
    target = load_target(folder, numerics="exact")
    ids = random_ids(150, seed=seed)
    cache = target.new_cache(num_slots=4, max_length=150)
    sizes = torch.randint(1, 40, (40,), generator=torch.Generator().manual_seed(seed)).tolist()
    while sum(sizes) > 150:
        sizes.pop()
    logits, taps = chunked(target, ids, [150], 0, cache)
    torch.testing.assert_close(logits, expected_of(model, ids)[0], atol=1e-4, rtol=1e-5)
    for split in ([1] * 150, [16] * 9, [64, 64, 22], [100, 1, 16, 5, 1], sizes):
        again = chunked(target, ids, split, 1, cache)
        assert torch.equal(again[0], logits[: sum(split)]), split
        assert torch.equal(again[1], taps[: sum(split)]), split
    chunked(target, ids, [63], 2, cache)
    chunked(target, ids, [129], 3, cache)
    packed = torch.cat((ids[63:79], ids[129:130], ids[:21]))
    rows = PackedRows((2, 3, 1), (63, 129, 0), (16, 1, 21))
    output = target.forward(packed, rows, cache, TAPS)
    expected = torch.cat((logits[63:79], logits[129:130], logits[:21]))
    assert torch.equal(target.logits(output.hidden), expected)
    assert torch.equal(target.logits(output.hidden[16:17]), logits[129:130])


def test_fast_numerics_are_not_bitwise(tiny_llama: tuple[Path, Any]) -> None:
    """The control of the test above."""
    target = load_target(tiny_llama[0])
    ids = random_ids(150)
    cache = target.new_cache(2, 150)
    alone, _ = chunked(target, ids, [1] * 150, 0, cache)
    together, _ = chunked(target, ids, [150], 1, cache)
    assert not torch.equal(alone, together)
    torch.testing.assert_close(alone, together, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (PackedRows((0,), (0,), (4,)), "3 tokens for rows of"),
        (PackedRows((), (), ()), "3 tokens for rows of"),
        (PackedRows((2,), (0,), (3,)), "slot 2 are outside the cache"),
        (PackedRows((0,), (300,), (3,)), "outside the cache"),
        (PackedRows((0,), (255,), (3,)), "at most 256 positions"),
        (PackedRows((0, 1), (0, 0), (3, 0)), "need 1 or more tokens"),
    ],
)
def test_rows_that_do_not_fit(tiny_llama: tuple[Path, Any], rows: PackedRows, message: str) -> None:
    target = load_target(tiny_llama[0])
    with pytest.raises(ValueError, match=message):
        target.forward(random_ids(3), rows, target.new_cache(2, 300), ())
    with pytest.raises(ValueError, match="tap layers"):
        target.forward(random_ids(3), PackedRows((0,), (0,), (3,)), target.new_cache(2, 300), (3,))


def test_real_model_equals_transformers(smollm2: Path) -> None:
    """SmolLM2: logits to 1e-4. Its residual stream reaches 26,000, so taps are compared to that."""
    target = load_target(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    ids = random_ids(24, vocab_size=49_152)
    kept = {}
    for number in (1, 15, 29):
        model.model.layers[number].register_forward_hook(
            lambda _block, _inputs, output, number=number: kept.update({number: output[0]})
        )
    with torch.inference_mode():
        expected = model(input_ids=ids.unsqueeze(0)).logits[0]
    cache = target.new_cache(2, 64)
    output = target.forward(ids[:14], PackedRows((1,), (0,), (14,)), cache, (1, 15, 29))
    rest = target.forward(ids[14:], PackedRows((1,), (14,), (10,)), cache, (1, 15, 29))
    logits = target.logits(torch.cat((output.hidden, rest.hidden)))
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-5)
    taps = torch.cat((output.taps, rest.taps)).split(target.spec.hidden_size, dim=-1)
    for number, tap in zip((1, 15, 29), taps, strict=True):
        block_output = kept[number].reshape(tap.shape)
        assert (tap - block_output).abs().max() < 2e-6 * block_output.abs().max() + 1e-5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.norm.weight", "has no tensor 'model.norm.weight'"),
        ("lm_head.weight", "has no tensor 'lm_head.weight'"),
        ("model.layers.1.mlp.up_proj.weight", "has no tensor"),
    ],
)
def test_missing_tensors(
    tiny_llama: tuple[Path, Any], tmp_path: Path, name: str, message: str
) -> None:
    from safetensors.torch import load_file, save_file

    for file in tiny_llama[0].glob("*.json"):
        (tmp_path / file.name).write_text(file.read_text())
    tensors = load_file(tiny_llama[0] / "model.safetensors")
    del tensors[name]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load_target(tmp_path)


def test_misshapen_tensors(tiny_llama: tuple[Path, Any], tmp_path: Path) -> None:
    for file in tiny_llama[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = (tmp_path / "config.json").read_text()
    config = config.replace('"intermediate_size": 80', '"intermediate_size": 96')
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=r"gate_proj.*shape \[80, 48\].*asks for \[96, 48\]"):
        load_target(tmp_path)
