"""One trainer for all: each corrector learns a text in which pairs matter, and resumes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.none import NoneCorrector
from dcoco_core.correctors.trainable import TrainableCorrector, TrainingSource
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.training.blocks import Blocks
from dcoco_core.training.corrector import CorrectorRecipe, CorrectorTrainer, corrector_loss
from dcoco_core.training.corrector_eval import accepted_greedily, oracle
from tests.unit.training.pair_blocks import (
    NUM_CANDIDATES,
    NUM_POSITIONS,
    VOCAB,
    embedding,
    pair_blocks,
)

BELONGING = Belonging(embedding_fingerprint(embedding()), "drafter-a")
DESIGNS = {
    "dflash2-selector": {"selector_rank": "16"},
    "lilicorr": {"lilicorr_hidden_size": "16", "lilicorr_factor_dim": "16"},
}


def new_corrector(name: str, seed: int = 0) -> TrainableCorrector:
    torch.manual_seed(seed)
    source = TrainingSource(
        embedding=embedding(),
        lm_head=embedding(),
        vocab_ids=torch.arange(VOCAB - 4),  # the anchor is outside
        num_candidates=NUM_CANDIDATES,
        max_positions=NUM_POSITIONS,
        design=DESIGNS[name],
    )
    return TRAINABLE[name](source)


def blocks_of(num_blocks: int, seed: int) -> Blocks:
    """Pair blocks with one steady direction in all states, as real ones have.

    The selector's pairs are gated by the state alone: pure noise in it would leave it nothing.
    """
    blocks = pair_blocks(num_blocks, seed)
    blocks.hidden[..., 1] = 4.0
    return blocks


def new_trainer(folder: Path, corrector: TrainableCorrector, steps: int) -> CorrectorTrainer:
    recipe = CorrectorRecipe(
        steps=steps, learning_rate=1e-2, blocks_per_step=128, steps_per_evaluation=10
    )
    return CorrectorTrainer(
        corrector, blocks_of(2000, 1), blocks_of(300, 2), recipe, folder, BELONGING
    )


@pytest.mark.parametrize("name", DESIGNS)
def test_training_beats_none_where_pairs_matter(name, tmp_path):
    trainer = new_trainer(tmp_path, new_corrector(name), steps=80)
    losses = list(trainer.run())
    assert losses[-1] < 0.3 * losses[0]
    heldout = blocks_of(400, 3)
    trained = load_corrector(
        name, tmp_path / "checkpoint", embedding=embedding(), drafter_fingerprint="drafter-a"
    )
    assert accepted_greedily(NoneCorrector(), heldout).acceptance_length < 2.2
    best = oracle(heldout).acceptance_length
    assert accepted_greedily(trained, heldout).acceptance_length > 0.95 * best


@pytest.mark.parametrize("name", DESIGNS)
def test_a_resumed_run_equals_an_unbroken_one(name, tmp_path):
    whole, broken = new_corrector(name), new_corrector(name)
    list(new_trainer(tmp_path / "whole", whole, steps=20).run())
    for number, _ in enumerate(new_trainer(tmp_path / "broken", broken, steps=20).run()):
        if number == 13:
            break
    again = new_corrector(name, seed=1)
    trainer = new_trainer(tmp_path / "broken", again, steps=20)
    assert trainer.progress.step == 10
    list(trainer.run())
    for key, tensor in whole.module.state_dict().items():
        torch.testing.assert_close(again.module.state_dict()[key], tensor)


@pytest.mark.parametrize("name", DESIGNS)
def test_shorter_blocks_teach_the_same_beside_longer_ones(name):
    """What pads them is no position that a corrector could read."""
    corrector, short = new_corrector(name), pair_blocks(64, 5)
    corrector.module.eval()
    loss = corrector_loss(corrector, short, 0.5)
    torch.testing.assert_close(corrector_loss(corrector, short.padded(7), 0.5), loss)


def test_the_hinge_asks_for_a_lead_of_two():
    """Untrained scores are the log-probs, so only the lead that they give counts."""
    corrector, blocks = new_corrector("dflash2-selector"), pair_blocks(64, 6)
    rows, positions = blocks.reachable().nonzero(as_tuple=True)
    scores = blocks.log_probs[rows, positions]
    ranks = blocks.gold_ranks()[rows, positions]
    expected = []
    for values, rank in zip(scores.tolist(), ranks.tolist(), strict=True):
        lead = values[rank] - max(v for i, v in enumerate(values) if i != rank)
        expected.append(max(0.0, 2.0 - lead))
    corrector.module.requires_grad_(False)
    plain = corrector_loss(corrector, blocks, 1.0)
    hinged = corrector_loss(corrector, blocks, 1.0, hinge_weight=0.5)
    mean = sum(expected) / len(expected)
    assert float(hinged - plain) == pytest.approx(0.5 * mean, rel=1e-4)
    unfound = dataclasses.replace(blocks, gold_ids=torch.full_like(blocks.gold_ids, 38))
    assert float(corrector_loss(corrector, unfound, 0.0, hinge_weight=0.5)) == 0.0
