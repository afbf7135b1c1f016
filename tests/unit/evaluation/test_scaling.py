"""The scaling command, on two drafters of a tiny target of which one learned more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dcoco_core.errors import CheckpointError, ConfigError
from dcoco_core.evaluation.__main__ import app
from dcoco_core.target.loading import load_target
from dcoco_core.training.answers import Answer
from dcoco_core.training.drafter import Recipe, train
from dcoco_core.training.drafter_run import Shape, start_run
from dcoco_core.training.prepare import record_answers
from dcoco_core.training.shards import ShardReader
from tests.unit.training.tiny_folder import MASK_ID, VOCAB, write_tiny_target

SHAPE = Shape(1, 16, block_size=4, mask_token_id=MASK_ID, draft_vocab_size=VOCAB - 4)
RECIPE = Recipe(
    steps=1,
    learning_rate=1e-2,
    block_lengths=(3,),
    sequences_per_step=4,
    anchors_per_sequence=6,
    ema_decay=0.5,
    autocast=False,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts in which every token follows from the last one; drafters of 1 and 30 steps."""
    made = tmp_path_factory.mktemp("scaling")
    target = load_target(write_tiny_target(made / "target"))
    answers = []
    for number in range(60):
        ids = [4 + number]
        while len(ids) < 20:
            ids.append(4 + (3 * (ids[-1] - 4) + 1) % (VOCAB - 4))
        answers.append(Answer("rule", tuple(ids[:4]), tuple(ids[4:]), 0.0, False))
    for _ in record_answers(target, answers, (0, 2), made / "shards", 200):
        pass
    for steps in (1, 30):
        recipe = replace(RECIPE, steps=steps)
        trainer = start_run(made / "target", SHAPE, recipe, made / "shards", made / f"{steps}")
        for _ in train(trainer, ShardReader(made / "shards", "heldout"), lambda _: None):
            pass
    return made


def scaling(folder: Path, *more: str) -> Result:
    checkpoints = [str(folder / steps / "checkpoint") for steps in ("1", "30")]
    options = ["--target", str(folder / "target"), "--shards", str(folder / "shards")]
    arguments = ["scaling", *checkpoints, *options, "--threads", "1"]
    return CliRunner().invoke(app, [*arguments, "--out", str(folder / "out"), *more])


def test_more_steps_accept_more(folder: Path) -> None:
    result = scaling(folder, "--amounts", "1,30", "--unit", "steps")
    assert result.exit_code == 0, result.output
    first, last = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["steps"], last["steps"]) == (1, 30)
    assert last["greedy"] > first["greedy"] + 0.2
    saved = json.loads((folder / "out" / "scaling.json").read_text())
    assert saved["unit"] == "steps"
    assert [point["amount"] for point in saved["points"]] == [1, 30]
    per_position = saved["points"][1]["heldout"]["greedy"]["acceptance_per_position"]
    assert 1 + sum(per_position) == pytest.approx(last["greedy"], abs=1e-3)
    assert (folder / "out" / "scaling.png").stat().st_size > 1000


def test_amounts_have_to_match(folder: Path) -> None:
    result = scaling(folder, "--amounts", "1,2,3")
    assert isinstance(result.exception, ConfigError)
    assert "3 amounts for 2 checkpoints" in str(result.exception)


def test_a_drafter_of_another_target_is_refused(folder: Path) -> None:
    other = write_tiny_target(folder / "other", seed=1)
    result = scaling(folder, "--target", str(other))
    assert isinstance(result.exception, CheckpointError)
    assert "does not fit the target" in str(result.exception)
