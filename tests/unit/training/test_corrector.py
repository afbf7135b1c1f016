"""Corrector training on a text in which pairs matter."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.dcoco.scorer import ScorerConfig
from dcoco_core.correctors.dcoco.trainable import TrainableDCOCO
from dcoco_core.correctors.none import NoneCorrector
from dcoco_core.errors import ConfigError
from dcoco_core.training.blocks import Blocks
from dcoco_core.training.corrector import CorrectorRecipe, CorrectorTrainer, corrector_loss
from dcoco_core.training.corrector_eval import (
    accepted_greedily,
    expected_length,
    kinds_of_text,
    oracle,
)
from dcoco_core.training.corrector_report import measure, write_report
from dcoco_core.training.state import Progress
from tests.unit.training.pair_blocks import (
    HIDDEN,
    NUM_CANDIDATES,
    NUM_POSITIONS,
    embedding,
    pair_blocks,
)

BELONGING = Belonging(embedding_fingerprint(embedding()), "drafter-a")


def new_corrector(seed=0):
    torch.manual_seed(seed)
    config = ScorerConfig(
        HIDDEN, num_candidates=NUM_CANDIDATES, candidate_size=16, pair_size=16, mlp_size=32
    )
    return TrainableDCOCO(embedding(), config=config)


def new_trainer(folder, corrector, **changes):
    recipe = CorrectorRecipe(
        steps=90, learning_rate=1e-2, blocks_per_step=128, steps_per_evaluation=30
    )
    recipe = dataclasses.replace(recipe, **changes)
    return CorrectorTrainer(
        corrector, pair_blocks(2000, 1), pair_blocks(300, 2), recipe, folder, BELONGING
    )


def test_training_beats_none_where_pairs_matter(tmp_path):
    trainer = new_trainer(tmp_path, new_corrector())
    losses = list(trainer.run())
    assert len(losses) == 90
    assert losses[-1] < 0.3 * losses[0]
    heldout = pair_blocks(400, 3)
    trained = load_corrector(
        "dcoco", tmp_path / "checkpoint", embedding=embedding(), drafter_fingerprint="drafter-a"
    )
    none = accepted_greedily(NoneCorrector(), heldout)
    best = oracle(heldout)
    ours = accepted_greedily(trained, heldout)
    assert none.acceptance_length < 2.2
    assert best.acceptance_length == pytest.approx(5 - 1 / 7, abs=0.02)
    assert ours.acceptance_length > 0.95 * best.acceptance_length

    figures = measure("dcoco", trained, {4: heldout})
    write_report(tmp_path, "dcoco", figures, trainer.curve, {"target": "tiny"})
    report = json.loads((tmp_path / "report.json").read_text())
    assert (
        report["heldout"]["all, 4 proposals"]["dcoco"]["acceptance_length"]
        == ours.acceptance_length
    )
    card = (tmp_path / "checkpoint" / "README.md").read_text()
    assert f"| all, 4 proposals | none | 400 | {none.acceptance_length:.3f} | 1.000 |" in card
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_a_resumed_run_equals_an_unbroken_one(tmp_path):
    whole = new_corrector()
    list(new_trainer(tmp_path / "whole", whole, steps=40, steps_per_evaluation=10).run())

    broken = new_corrector()
    for number, _ in enumerate(
        new_trainer(tmp_path / "broken", broken, steps=40, steps_per_evaluation=10).run()
    ):
        if number == 24:
            break  # five steps after the last saved state
    again = new_corrector(seed=1)
    trainer = new_trainer(tmp_path / "broken", again, steps=40, steps_per_evaluation=10)
    assert trainer.progress.step == 20
    list(trainer.run())
    for name, parameter in whole.module.state_dict().items():
        torch.testing.assert_close(again.module.state_dict()[name], parameter)
    curves = [
        json.loads((tmp_path / name / "curve.json").read_text()) for name in ("whole", "broken")
    ]
    lengths = [[entry["acceptance_length"] for entry in curve] for curve in curves]
    assert lengths[0] == lengths[1]


def test_patience_ends_a_run_that_no_longer_improves(tmp_path):
    trainer = new_trainer(
        tmp_path, new_corrector(), steps=2000, steps_per_evaluation=20, patience=2
    )
    assert len(list(trainer.run())) < 400
    lengths = [entry["expected_length"] for entry in trainer.curve]
    assert len(lengths) == lengths.index(max(lengths)) + 3


def test_teacher_forced_scores_are_those_of_the_walk():
    """Training and inference compute the same function: along the walk's own choices as gold."""
    corrector = new_corrector()
    with torch.no_grad():
        for parameter in corrector.module.parameters():
            parameter.normal_(0, 0.3)
    blocks = pair_blocks(50, 5)
    draft = corrector.inference().correct(blocks.lattice())
    blocks = dataclasses.replace(blocks, gold_ids=draft.token_ids.int())
    rows, positions = blocks.reachable().nonzero(as_tuple=True)
    assert len(rows) == 50 * NUM_POSITIONS
    corrector.module.eval()
    scores = corrector.scores(blocks.lattice(), blocks.gold_ids, rows, positions)
    best = blocks.candidate_ids[rows, positions].gather(1, scores.argmax(1, keepdim=True))[:, 0]
    assert torch.equal(best, blocks.gold_ids[rows, positions])
    assert not torch.equal(draft.token_ids, blocks.candidate_ids[..., 0])


def test_the_loss_looks_only_at_places_that_can_matter():
    blocks, corrector = pair_blocks(64, 6), new_corrector()
    gold = blocks.gold_ids.clone()
    gold[:, 1] = 38  # never a candidate: positions 2 and 3 are out of reach
    blocks = dataclasses.replace(blocks, gold_ids=gold)
    assert blocks.reachable().tolist() == [[True, True, False, False]] * 64
    hidden = blocks.hidden.clone()
    hidden[:, 2:] = 0
    log_probs = blocks.log_probs.index_fill(1, torch.tensor([2, 3]), 0.0)
    changed = dataclasses.replace(blocks, hidden=hidden, log_probs=log_probs)
    assert 38 not in blocks.candidate_ids
    for soft_share in (0.0, 0.5, 1.0):
        loss = corrector_loss(corrector, blocks, soft_share)
        assert torch.equal(loss, corrector_loss(corrector, changed, soft_share))
        assert torch.isfinite(loss)


def test_untrained_hard_loss_is_the_drafters_own():
    blocks = pair_blocks(64, 6)
    rows, positions = blocks.reachable().nonzero(as_tuple=True)
    log_probs = blocks.log_probs[rows, positions].log_softmax(-1)
    expected = -log_probs.gather(1, blocks.gold_ranks()[rows, positions, None]).mean()
    torch.testing.assert_close(corrector_loss(new_corrector(), blocks, 0.0), expected)


def test_expected_length_of_untrained_scores_is_the_drafters_own():
    blocks = pair_blocks(300, 6)
    ranks = blocks.gold_ranks()
    probs = blocks.log_probs.softmax(-1)
    probs = torch.cat([probs, torch.zeros_like(probs[..., :1])], -1)
    gold = probs.gather(-1, ranks[..., None])[..., 0]
    expected = 1 + gold.cumprod(1).sum(1).mean()
    assert expected_length(new_corrector(), blocks) == pytest.approx(float(expected), abs=1e-5)


def test_kinds_of_text():
    kinds = kinds_of_text(pair_blocks(40, 7))
    assert {kind: len(blocks) for kind, blocks in kinds.items()} == {
        "greedy": 20,
        "sampled": 20,
        "greedy_no_loops": 16,
        "sampled_no_loops": 16,
        "all": 40,
    }
    greedy_only = pair_blocks(40, 7)[torch.arange(0, 40, 2)]
    assert isinstance(greedy_only, Blocks)
    assert sorted(kinds_of_text(greedy_only)) == ["all", "greedy", "greedy_no_loops"]


def test_minutes_count_training_time_over_all_resumptions():
    recipe = CorrectorRecipe(minutes=2.0, learning_rate=1.0, warmup=0.1)
    assert recipe.spent(Progress(elapsed_s=60)) == 0.5
    assert recipe.learning_rate_at(0.05) == pytest.approx(0.5)
    assert recipe.learning_rate_at(0.55) == pytest.approx(0.5)
    assert recipe.learning_rate_at(1.0) == pytest.approx(0.0)


@pytest.mark.parametrize("budget", [{}, {"minutes": 1.0, "steps": 5}])
def test_one_budget_is_needed(budget):
    with pytest.raises(ConfigError, match="set one of minutes and steps"):
        CorrectorRecipe(**budget)
