"""config.json in the published format: where keys are looked up, and what is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.config_reader import spread_layer_ids
from dcoco_core.drafters.dflash.patterns import AttentionPattern
from dcoco_core.errors import CheckpointError
from tests.unit.drafters.dflash.networks import CONFIG

# The published Qwen3-8B drafter (SpecForge configs/qwen3-8b-dflash.json, facts only).
QWEN3_8B: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "num_target_layers": 36,
    "num_hidden_layers": 5,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "vocab_size": 151936,
}


def test_published_config():
    config = DFlashConfig.from_json(QWEN3_8B)
    assert config.target_layer_ids == (1, 9, 17, 25, 33)
    assert (config.block_size, config.max_draft_tokens) == (16, 15)
    assert not config.shift_label
    assert config.num_inputs(15) == 16


def test_own_section_wins_over_the_top_level():
    data = QWEN3_8B | {"dflash_config": QWEN3_8B["dflash_config"] | {"block_size": 8}}
    assert DFlashConfig.from_json(data).block_size == 8


def test_missing_layer_ids_are_spread_as_published():
    data = QWEN3_8B | {"dflash_config": {"mask_token_id": 1}}
    assert DFlashConfig.from_json(data).target_layer_ids == (1, 9, 17, 25, 33)
    assert spread_layer_ids(30, 5) == (1, 8, 14, 20, 27)
    assert spread_layer_ids(30, 1) == (15,)


def test_alignment_is_explicit_or_follows_the_architecture():
    own = QWEN3_8B["dflash_config"]
    shifted = DFlashConfig.from_json(QWEN3_8B | {"dflash_config": own | {"shift_label": True}})
    assert shifted.shift_label
    assert (shifted.max_draft_tokens, shifted.num_inputs(15)) == (15, 15)
    dspark = DFlashConfig.from_json(QWEN3_8B | {"architectures": ["DSparkDraftModel"]})
    assert dspark.shift_label
    assert (dspark.max_draft_tokens, dspark.num_inputs(16)) == (16, 16)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (AttentionPattern(True, 9), AttentionPattern())),
        ({"causal": False}, (AttentionPattern(False, 9), AttentionPattern())),
        ({"is_causal": True}, (AttentionPattern(True, 9), AttentionPattern(True))),
        ({"swa_window_size": 5}, (AttentionPattern(True, 5), AttentionPattern())),
    ],
)
def test_sliding_layers(changes, expected):
    data = CONFIG.to_json() | {"layer_types": ["sliding_attention", "full_attention"]}
    own = {k: v for k, v in data["dflash_config"].items() if k != "causal"}
    data |= {"sliding_window": 9, "dflash_config": own | changes}
    assert DFlashConfig.from_json(data).attention == expected


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        replace(CONFIG, shift_label=False, draft_vocab_size=40, target_name="t"),
        replace(CONFIG, samples_all=True, target_fingerprint="f", chat_fingerprint="c"),
        replace(CONFIG, attention=(AttentionPattern(False, 7), AttentionPattern())),
        replace(CONFIG, output_multiplier=0.5, final_logit_softcapping=30.0),
    ],
)
def test_written_configs_are_read_back(config):
    assert DFlashConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "4096"}, "hidden_size has the wrong type: '4096'"),
        ({"num_hidden_layers": True}, "num_hidden_layers has the wrong type"),
        ({"block_size": 1}, "block_size 1 is below 2"),
        ({"num_key_value_heads": 5}, "32 heads do not share 5 KV heads"),
        ({"dflash_config": [1]}, "dflash_config must be an object"),
        ({"mask_token_id": 151936}, "mask_token_id 151936 is outside"),
        ({"target_layer_ids": [1, 35]}, r"must name blocks 0 to 34"),
        ({"target_layer_ids": [-1]}, r"must name blocks"),
        ({"target_layer_ids": ["1"]}, "must be integers"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope type 'yarn' is not supported"),
        ({"layer_types": ["full_attention"]}, "layer_types must name every layer"),
        ({"layer_types": ["sliding_attention"] * 5}, "sliding layers need sliding_window"),
        (
            {"architectures": ["DSparkDraftModel"], "shift_label": False},
            "needs shift_label true",
        ),
    ],
)
def test_refusals_name_the_key(changes, message):
    data = {**QWEN3_8B, **QWEN3_8B["dflash_config"]}
    del data["dflash_config"]
    with pytest.raises(CheckpointError, match=message):
        DFlashConfig.from_json(data | changes, source="some/config.json")


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_damaged_file(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        DFlashConfig.load(tmp_path)


def test_missing_file(tmp_path):
    with pytest.raises(CheckpointError, match="no drafter checkpoint at"):
        DFlashConfig.load(tmp_path / "nowhere")
