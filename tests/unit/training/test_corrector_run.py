"""A whole corrector run on a tiny target, a random drafter and recorded text."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from dcoco_core.drafters.dflash.checkpoint import save_checkpoint
from dcoco_core.errors import CheckpointError, ConfigError
from dcoco_core.target.interface import TargetModel
from dcoco_core.training.__main__ import app
from dcoco_core.training.corrector import CorrectorRecipe
from dcoco_core.training.corrector_run import (
    CorrectorRun,
    join_lengths,
    join_parts,
    run_corrector,
    split_for_stopping,
)
from dcoco_core.training.shards import SequenceInfo, ShardIndex, ShardWriter
from tests.unit.drafters.dflash.networks import (
    CONFIG,
    HIDDEN,
    TAPS,
    VOCAB,
    SpecTarget,
    random_model,
)
from tests.unit.training.pair_blocks import pair_blocks

TARGET = cast(TargetModel, SpecTarget())
RECIPE = CorrectorRecipe(steps=6, blocks_per_step=64, steps_per_evaluation=3)


def write_shards(folder: Path, target_layer_ids: tuple[int, ...] = (0, 2)) -> None:
    generator = torch.Generator().manual_seed(3)
    index = ShardIndex("tiny", "unknown", target_layer_ids, HIDDEN, VOCAB, 4)
    writer = ShardWriter(folder, index)
    for number in range(120):
        num_tokens = 12 + number % 5
        ids = torch.randint(4, VOCAB, (num_tokens,), generator=generator)
        top = torch.rand(num_tokens, VOCAB, generator=generator).topk(32)
        writer.add(
            SequenceInfo("random", 4, num_tokens, 0.0, loops=False),
            token_ids=ids,
            taps=torch.randn(num_tokens, TAPS * HIDDEN, generator=generator),
            hidden=torch.randn(num_tokens, HIDDEN, generator=generator),
            top_ids=top.indices,
            top_log_probs=top.values.log_softmax(-1),
        )
    writer.flush()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CorrectorRun:
    folder = tmp_path_factory.mktemp("run")
    save_checkpoint(folder / "drafter", CONFIG, dict(random_model().named_parameters()))
    write_shards(folder / "shards")
    return CorrectorRun(
        name="dcoco",
        drafter=folder / "drafter",
        shards=folder / "shards",
        blocks=folder / "blocks",
        out=folder / "out",
        parts=("corrector", "drafter"),
        num_positions=(5, 3),
    )


def test_a_run_from_shards_to_report_and_on_again(run):
    figures = run_corrector(run, TARGET, RECIPE)
    every = figures["all, 5 proposals"]
    assert set(every) == {"none", "dcoco", "oracle"}
    assert every["oracle"].acceptance_length > every["none"].acceptance_length
    assert len(every["none"].per_position) == 5
    assert len(figures["all, 3 proposals"]["none"].per_position) == 3
    report = json.loads((run.out / "report.json").read_text())
    assert report["facts"]["steps"].startswith("6 in ")
    assert sorted(path.name for path in (run.out / "checkpoint").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    # The same again: nothing is left to do. The blocks come from the cache, the shards are gone.
    elsewhere = dataclasses.replace(run, shards=run.shards / "nowhere")
    again = run_corrector(elsewhere, TARGET, RECIPE)
    assert again == figures
    more = run_corrector(elsewhere, TARGET, dataclasses.replace(RECIPE, steps=9))
    assert more["all, 5 proposals"]["none"] == every["none"]
    assert json.loads((run.out / "report.json").read_text())["facts"]["steps"].startswith("9 in ")
    assert [e["step"] for e in json.loads((run.out / "curve.json").read_text())] == [3, 6, 9]


def test_the_command(run, tmp_path, monkeypatch):
    monkeypatch.setattr("dcoco_core.training.corrector_command.resolve_target", Path)
    monkeypatch.setattr("dcoco_core.target.loading.load_target", lambda folder, device: TARGET)
    result = CliRunner().invoke(
        app,
        [
            "corrector",
            *("--drafter", str(run.drafter), "--shards", str(run.shards)),
            *("--blocks", str(run.blocks), "--out", str(tmp_path), "--num-positions", "3"),
            *("--steps", "2", "--design", "mlp_size=16", "--design", "activation=relu"),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "all, 3 proposals: none 1." in result.output
    assert (tmp_path / "checkpoint" / "model.safetensors").exists()


def test_a_design_and_fewer_candidates(run, tmp_path):
    """What a run chooses is what its checkpoint says; the drafted blocks are those of 16."""
    chosen = dataclasses.replace(
        run,
        out=tmp_path,
        num_positions=(3,),
        num_candidates=4,
        design={"pair_state": "false", "mlp_size": "32"},
    )
    figures = run_corrector(chosen, TARGET, RECIPE)
    options = json.loads((tmp_path / "checkpoint" / "config.json").read_text())["corrector"]
    assert (options["num_candidates"], options["mlp_size"], options["pair_state"]) == (4, 32, False)
    assert "pair_proj.weight" not in load_file(tmp_path / "checkpoint" / "model.safetensors")
    wider = run_corrector(
        dataclasses.replace(chosen, out=tmp_path / "16", num_candidates=16), TARGET, RECIPE
    )
    kind = "all, 3 proposals"
    assert figures[kind]["none"] == wider[kind]["none"]
    oracles = [f[kind]["oracle"].acceptance_length for f in (figures, wider)]
    assert oracles[0] < oracles[1]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["facts"]["design"] == "pair_state false, mlp_size 32"


def test_shards_with_other_taps_are_refused(run, tmp_path):
    write_shards(tmp_path / "shards", target_layer_ids=(1, 2))
    other = dataclasses.replace(run, shards=tmp_path / "shards", blocks=tmp_path, out=tmp_path)
    with pytest.raises(ConfigError, match=r"holds taps \(1, 2\), the drafter needs \(0, 2\)"):
        run_corrector(other, TARGET, RECIPE)


def test_a_drafter_of_another_target_is_refused(run, tmp_path):
    wider: Any = SpecTarget(vocab_size=VOCAB + 1)
    with pytest.raises(CheckpointError, match="vocabulary"):
        run_corrector(dataclasses.replace(run, out=tmp_path), wider, RECIPE)


def test_texts_are_never_split_between_training_and_stopping():
    training, stopping = split_for_stopping(pair_blocks(640, 1))
    assert len(training) == 560
    assert len(stopping) == 80
    assert not set(training.sequence_ids.tolist()) & set(stopping.sequence_ids.tolist())
    with pytest.raises(ConfigError, match="at least 2 texts are needed, got 1"):
        split_for_stopping(pair_blocks(8, 1))


def test_short_blocks_are_padded_and_learn_nothing_from_the_padding():
    long, short = pair_blocks(20, 1), pair_blocks(20, 2)
    short = dataclasses.replace(
        short,
        **{
            name: getattr(short, name)[:, :2]
            for name in ("candidate_ids", "log_probs", "hidden", "gold_ids", "target_probs")
        },
    )
    joined = join_lengths([long, short])
    assert joined.candidate_ids.shape == (40, 4, 4)
    assert torch.equal(joined.reachable()[:20], long.reachable())
    assert torch.equal(joined.reachable()[20:, :2], short.reachable())
    assert not joined.reachable()[20:, 2:].any()


def test_parts_keep_their_texts_apart():
    joined = join_parts([pair_blocks(20, 1), pair_blocks(20, 2)])
    counts = joined.sequence_ids.bincount().tolist()
    assert counts == [8, 8, 4, 8, 8, 4]
    assert joined.sequence_ids.tolist() == sorted(joined.sequence_ids.tolist())
