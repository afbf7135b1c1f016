"""The commands one after the other, on a target small enough for seconds."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.errors import ConfigError
from dcoco_core.training.__main__ import app
from dcoco_core.training.answers import read_answers
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


def test_generate_prepare_drafter(tmp_path):
    target, answers = write_tiny_target(tmp_path / "target"), tmp_path / "text" / "answers.jsonl.gz"
    generate = {"out": answers, "target": target, "max_tokens": 12, "rows": 16}
    call("generate", **generate, prompts_per_source=30)
    first = list(read_answers(answers))
    assert len(first) > 10
    assert all(1 <= len(answer.response_ids) <= 12 for answer in first)
    # More prompts: what is there stays, and is not answered again.
    output = call("generate", **generate, prompts_per_source=60)
    assert f"{len(first)} answers are there already" in output
    both = list(read_answers(answers))
    assert both[: len(first)] == first
    assert len(both) > len(first)

    shards = tmp_path / "shards"
    call("prepare", answers=answers, out=shards, target=target, target_layer_ids="0,2")
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


def test_missing_input_is_one_of_our_errors(tmp_path):
    target = write_tiny_target(tmp_path / "target")
    with pytest.raises(ConfigError, match="no answers at"):
        call("prepare", answers=tmp_path / "none.jsonl", out=tmp_path / "out", target=target)
    with pytest.raises(ConfigError, match="no shards at"):
        call("drafter", shards=tmp_path / "none", out=tmp_path / "o", target=target, steps=1)
