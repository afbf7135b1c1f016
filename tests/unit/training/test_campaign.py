"""A newcomer's path: one YAML file, one command, weights for a target never seen before."""

from __future__ import annotations

import json

import pytest
import torch
import yaml
from typer.testing import CliRunner

from dcoco_core.errors import ConfigError
from dcoco_core.training.__main__ import app
from dcoco_core.training.campaign import Campaign
from tests.unit.training.tiny_folder import MASK_ID, write_tiny_target


def settings(folder):
    return {
        "target": str(write_tiny_target(folder / "target")),
        "prefix": "tiny",
        "out": str(folder / "run"),
        "minutes": 0.2,
        "correctors": ["dcoco", "domino"],
        "jobs": 2,
        "generate": {"rows": 16, "max_tokens": 12, "prompts_per_source": 60, "minutes": 5},
        "drafter": {
            "layers": 1,
            "intermediate_size": 16,
            "block_size": 4,
            "draft_vocab_size": 60,
            "mask_token_id": MASK_ID,
            "block_lengths": "2,3",
        },
        "corrector": {"num_positions": "3", "stride": 1},
    }


def test_from_a_config_to_weights(tmp_path):
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(settings(tmp_path)))
    result = CliRunner().invoke(app, ["campaign", str(config)])
    if result.exception is not None:
        raise result.exception
    weights = tmp_path / "run" / "weights"
    assert f"weights of tiny are in {weights}" in result.output
    made = {folder.name for folder in weights.iterdir()}
    assert made == {"tiny-dflash", "tiny-dcoco", "tiny-domino"}
    for folder in weights.iterdir():
        assert (folder / "model.safetensors").stat().st_size > 0
        assert "acceptance length" in (folder / "README.md").read_text()
    steps = (tmp_path / "run" / "drafter" / "log.jsonl").read_text().splitlines()
    assert json.loads(steps[-1])["step"] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"minuts": 3}, "minuts: Extra inputs are not permitted"),
        ({"minutes": 0}, "minutes: Input should be greater than 0"),
        ({"correctors": []}, "correctors: Tuple should have at least 1 item"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, change, message):
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump({**settings(tmp_path), **change}))
    with pytest.raises(ConfigError, match=message):
        Campaign.load(config)
    with pytest.raises(ConfigError, match="cannot read"):
        Campaign.load(tmp_path / "none.yaml")


def test_a_failing_stage_is_named(tmp_path):
    plan = Campaign.model_validate({**settings(tmp_path), "generate": {"sources": "nowhere"}})
    with pytest.raises(ConfigError, match="stage 'generate' failed"):
        plan.run()


def test_a_device_that_is_not_here_ends_it_before_it_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    plan = Campaign.model_validate({**settings(tmp_path), "device": "cuda"})
    with pytest.raises(ConfigError, match="cuda is not available here"):
        plan.run()
    assert not plan.out.exists()
