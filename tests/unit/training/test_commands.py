"""The commands one after the other, on a target small enough for seconds."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
from typer.testing import CliRunner

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.errors import ConfigError
from dcoco_core.training.__main__ import app
from dcoco_core.training.answers import Answer
from dcoco_core.training.shards import PARTS, ShardReader, recorded_prompts
from tests.unit.training.tiny_folder import MASK_ID, write_tiny_target

RUNNER = CliRunner()


def call(command: str, **options: object) -> str:
    arguments = [command]
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    result = RUNNER.invoke(app, arguments)
    if result.exception is not None:
        raise result.exception
    return result.output


def test_generate_then_drafter(tmp_path):
    target, shards = write_tiny_target(tmp_path / "target"), tmp_path / "shards"
    generate = {"out": shards, "target": target, "max_tokens": 12, "rows": 16}
    generate |= {"target_layer_ids": "0,2"}
    call("generate", **generate, prompts_per_source=30)
    first = recorded_prompts(shards)
    assert len(first) > 5
    # More prompts: what is there stays, and is not answered again.
    call("generate", **generate, prompts_per_source=60)
    assert recorded_prompts(shards) > first
    texts = [s for part in PARTS for s in ShardReader(shards, part)]
    assert len(texts) == len(recorded_prompts(shards))
    assert all(2 <= s.info.num_tokens - s.info.num_prompt <= 12 for s in texts)

    out = tmp_path / "run"
    sizes = {"layers": 1, "intermediate_size": 16, "block_size": 4, "draft_vocab_size": 60}
    call(
        "drafter",
        shards=shards,
        out=out,
        target=target,
        steps=2,
        mask_token_id=MASK_ID,
        block_lengths="2,3",
        **sizes,
    )
    assert DFlashConfig.load(out / "checkpoint").target_layer_ids == (0, 2)
    assert json.loads((out / "run.json").read_text())[0]["settings"]["recipe"]["steps"] == 2


def test_text_made_elsewhere_is_recorded_alike(tmp_path):
    target, shards = write_tiny_target(tmp_path / "target"), tmp_path / "shards"
    generate = {"target": target, "max_tokens": 12, "rows": 16, "prompts_per_source": 30}
    call("generate", out=shards, **generate, dtype="float32")
    made = {tuple(s.token_ids.tolist()): s for part in PARTS for s in ShardReader(shards, part)}
    answers = tmp_path / "answers.jsonl"
    with answers.open("w") as file:
        for tokens, text in made.items():
            prompt, response = tokens[: text.info.num_prompt], tokens[text.info.num_prompt :]
            file.write(json.dumps(asdict(Answer("own", prompt, response, 0.0, False))) + "\n")
    again = tmp_path / "again"
    call("prepare", answers=answers, out=again, target=target, dtype="float32")
    both = [s for part in PARTS for s in ShardReader(again, part)]
    assert len(both) == len(made)
    for text in both:
        twin = made[tuple(text.token_ids.tolist())]
        first, last = text.info.num_prompt - 1, text.info.num_tokens - 1
        assert torch.allclose(text.taps[:last].float(), twin.taps[:last].float(), rtol=0.02)
        assert torch.allclose(text.hidden[:last].float(), twin.hidden[:last].float(), atol=0.02)
        assert torch.allclose(
            text.top_log_probs[first:last], twin.top_log_probs[first:last], atol=0.05
        )
        assert not twin.taps[last].any()
        assert not twin.top_ids[:first].any()


def test_missing_input_is_one_of_our_errors(tmp_path):
    target = write_tiny_target(tmp_path / "target")
    with pytest.raises(ConfigError, match="no answers at"):
        call("prepare", answers=tmp_path / "none.jsonl", out=tmp_path / "out", target=target)
    with pytest.raises(ConfigError, match="no shards at"):
        call("drafter", shards=tmp_path / "none", out=tmp_path / "o", target=target, steps=1)
