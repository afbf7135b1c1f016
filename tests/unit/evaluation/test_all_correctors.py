"""One evaluation with every corrector of the catalog, each with untrained weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from dcoco_core.correctors.catalog import CORRECTORS
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.trainable import TrainingSource
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.drafters.fingerprint import fingerprint_checkpoint
from dcoco_core.evaluation import session, sets
from dcoco_core.evaluation.__main__ import app
from dcoco_core.evaluation.figures import SEQUENTIAL
from dcoco_core.evaluation.sets import EvalPrompt, EvalSet
from dcoco_core.prompts import own_prompts
from dcoco_core.target.tables import load_tables
from tests.tiny_model import write_drafter, write_target

PREFIX = "tiny"


def write_all(folder: Path) -> None:
    """A target in folder/target, and in folder/weights everything that drafts for it."""
    target, weights = write_target(folder / "target"), folder / "weights"
    drafter = write_drafter(weights / f"{PREFIX}-dflash", target)
    tables = load_tables(target)
    belonging = Belonging(embedding_fingerprint(tables.embedding), fingerprint_checkpoint(drafter))
    torch.manual_seed(3)
    for name in TRAINABLE:
        source = TrainingSource(tables.embedding, tables.lm_head, max_positions=7)
        corrector = TRAINABLE[name](source)
        for parameter in corrector.module.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        corrector.save(weights / f"{PREFIX}-{name}", belonging)


def test_quick_with_every_corrector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path)
    texts = own_prompts(evaluation=True)[:3]
    prompts = [EvalPrompt(text, ({"role": "user", "content": text},)) for text in texts]
    monkeypatch.setattr(sets, "SETS", {"own": EvalSet("own", "chat", "own", 3, lambda: prompts)})
    monkeypatch.setattr(session, "SOURCES", ("own",))
    arguments = ["quick", "--target", str(tmp_path / "target"), "--prefix", PREFIX]
    arguments += ["--weights", str(tmp_path / "weights"), "--sets", "own", "--threads", "1"]
    arguments += ["--max-tokens", "12", "--timed-prompts", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output

    line = json.loads(result.stdout.splitlines()[-1])
    lengths = line["acceptance_length"]
    assert set(lengths) == set(line["correct_over_round"]) == set(CORRECTORS)
    best = max(lengths[name] for name in SEQUENTIAL)
    assert line["ratio_dcoco_best_sequential"] == pytest.approx(lengths["dcoco"] / best, abs=1e-3)
    saved = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    figures = saved["settings"]["greedy"]["all sets"]
    assert set(figures["dcoco_over"]) == set(CORRECTORS) - {"dcoco"}
    gaps = {name: found["captured_gap"] for name, found in figures["correctors"].items()}
    assert all(gaps[name] is not None for name in TRAINABLE)
    assert gaps["none"] is gaps["oracle"] is None
    # At temperature 1 two of them decode: the others would take most of the time.
    assert list(saved["settings"]["rejection-t1"]["all sets"]["correctors"]) == ["none", "dcoco"]
    page = (tmp_path / "out" / "evaluation.md").read_text()
    assert "| dcoco / best sequential |" in page
    assert "gap captured" in page
