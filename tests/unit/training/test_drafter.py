"""From a target folder to a trained drafter: answers, shards, training, resumption, serving."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.drafter import DFlashDrafter, DrafterSettings
from dcoco_core.errors import CheckpointError, ConfigError
from dcoco_core.target.loading import load_target
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.training.drafter import DrafterTrainer, Recipe, train
from dcoco_core.training.drafter_report import RunReport
from dcoco_core.training.drafter_run import Shape, start_run
from dcoco_core.training.shards import ShardReader
from tests.unit.training.recorded_rule import RECIPE, SHAPE, write_recorded
from tests.unit.training.tiny_folder import write_tiny_target


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target and the shards recorded from it."""
    return write_recorded(tmp_path_factory.mktemp("recorded"))


def start(
    recorded: Path, out: Path, recipe: Recipe = RECIPE, shape: Shape = SHAPE
) -> DrafterTrainer:
    return start_run(recorded / "target", shape, recipe, recorded / "shards", out)


@pytest.mark.parametrize("shift_label", [True, False])
def test_loss_falls(recorded, tmp_path, shift_label):
    trainer = start(
        recorded,
        tmp_path,
        replace(RECIPE, steps=60, label_share=1.0),
        replace(SHAPE, shift_label=shift_label),
    )
    losses = list(trainer.run())
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_resumed_run_equals_an_uninterrupted_one(recorded, tmp_path):
    whole = start(recorded, tmp_path / "whole")
    expected = list(whole.run())
    first = start(recorded, tmp_path / "parts")
    run = first.run()
    losses = [next(run) for _ in range(11)]
    first.save()
    second = start(recorded, tmp_path / "parts")
    assert second.progress.step == 11
    losses += list(second.run())
    assert losses == expected
    for name, average in whole.ema.tensors.items():
        assert torch.equal(average, second.ema.tensors[name]), name
    runs = json.loads((tmp_path / "parts" / "run.json").read_text())
    assert len(runs) == 2


def test_a_run_ends_in_a_checkpoint_that_serves(recorded, tmp_path):
    trainer = start(recorded, tmp_path, replace(RECIPE, steps=8))
    heldout = ShardReader(recorded / "shards", "heldout")
    spent = [part for part, _ in train(trainer, heldout, RunReport(tmp_path, trainer))]
    assert spent[-1] == 1.0
    entry = json.loads((tmp_path / "log.jsonl").read_text())
    assert entry["step"] == 8
    assert len(entry["heldout"]["greedy"]["acceptance_per_position"]) == 4
    assert (tmp_path / "curve.png").stat().st_size > 1000
    checkpoint = tmp_path / "checkpoint"
    assert "blocks of 5, taps [0, 2]" in (checkpoint / "README.md").read_text()
    config = DFlashConfig.load(checkpoint)
    assert config == trainer.model.config
    target = load_target(recorded / "target")
    tokenizer = TargetTokenizer(recorded / "target")
    settings = DrafterSettings(max_positions=64)
    drafter = DFlashDrafter.load(checkpoint, target, settings, tokenizer)
    assert drafter.max_draft_tokens == 4


def test_another_targets_shards_are_refused(recorded, tmp_path):
    other = write_tiny_target(tmp_path / "other", seed=1)
    with pytest.raises(ConfigError, match="whose weights are not those of"):
        start_run(other, SHAPE, RECIPE, recorded / "shards", tmp_path / "run")


def test_another_networks_state_is_refused(recorded, tmp_path):
    start(recorded, tmp_path).save()
    with pytest.raises(CheckpointError, match="belongs to another network"):
        start(recorded, tmp_path, shape=replace(SHAPE, intermediate_size=24))


def test_mask_token_must_not_be_text(recorded, tmp_path):
    with pytest.raises(CheckpointError, match="ordinary token 'f'"):
        start(recorded, tmp_path, shape=replace(SHAPE, mask_token_id=9))


def test_budget_is_minutes_or_steps():
    with pytest.raises(ConfigError, match="one of minutes and steps"):
        Recipe()
    with pytest.raises(ConfigError, match="one of minutes and steps"):
        Recipe(minutes=1, steps=1)


def test_learning_rate_warms_up_and_falls():
    recipe = Recipe(steps=100, learning_rate=1.0, warmup=0.1, final_learning_rate=0.1)
    rates = [recipe.learning_rate_at(i / 100) for i in range(101)]
    assert rates[5] == pytest.approx(0.5)
    assert max(rates) == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.1)
