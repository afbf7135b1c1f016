"""The sequential correctors learn a text in which every token fixes the next, and resume."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.dspark.corrector import DSparkCorrector
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

EMBEDDING = 20 * embedding()  # of unit size, so that few steps do
BELONGING = Belonging(embedding_fingerprint(EMBEDDING), "drafter-a")
DSPARK = ("dspark-vanilla", "dspark-gated", "dspark-rnn")
NAMES = ("domino", *DSPARK)


def new_corrector(name: str, seed: int = 0) -> TrainableCorrector:
    torch.manual_seed(seed)
    sizes = {"emb_dim": "16", "gru_hidden_dim": "16"} if name == "domino" else {"markov_rank": "16"}
    source = TrainingSource(
        embedding=EMBEDDING,
        lm_head=EMBEDDING,
        vocab_ids=torch.arange(VOCAB - 4),  # the anchor is outside
        num_candidates=NUM_CANDIDATES,
        max_positions=NUM_POSITIONS,
        design=sizes,
    )
    return TRAINABLE[name](source)


def bigram_blocks(num_blocks: int, seed: int) -> Blocks:
    """Pair blocks whose first position the drafter gets right; the rest is up to the tokens.

    Domino leaves the first position alone, and DSpark's vanilla head reads no states. The target
    is sure of the first family and not of the second.
    """
    blocks = pair_blocks(num_blocks, seed)
    family = blocks.gold_ids[:, 0] % NUM_CANDIDATES
    swapped, order = torch.tensor([1, 0, 2, 3]), torch.arange(NUM_CANDIDATES)
    order = torch.where((blocks.gold_ranks()[:, 0] == 1)[:, None], swapped, order)
    ids, hidden, log_probs = (
        tensor.clone() for tensor in (blocks.candidate_ids, blocks.hidden, blocks.log_probs)
    )
    ids[:, 0] = ids[:, 0].gather(1, order)
    log_probs[:, 0] = torch.tensor([0.0, -6.0, -8.0, -9.0]).log_softmax(0)
    hidden[:, 0, 0] = 0.0
    sure = torch.where(family == 0, 0.9, 0.5)[:, None, None]
    return dataclasses.replace(
        blocks,
        candidate_ids=ids,
        log_probs=log_probs,
        hidden=hidden,
        target_probs=((ids == blocks.gold_ids[..., None]) * sure).half(),
    )


def new_trainer(folder: Path, corrector: TrainableCorrector, steps: int) -> CorrectorTrainer:
    recipe = CorrectorRecipe(
        steps=steps,
        learning_rate=1e-2,
        blocks_per_step=128,
        steps_per_evaluation=10 if steps <= 20 else steps,
    )
    return CorrectorTrainer(
        corrector, bigram_blocks(2000, 1), bigram_blocks(300, 2), recipe, folder, BELONGING
    )


@pytest.mark.parametrize("name", NAMES)
def test_training_gains_what_the_drafter_cannot_know(name, tmp_path):
    corrector, heldout = new_corrector(name), bigram_blocks(400, 3)
    before = float(corrector_loss(corrector, heldout, 1.0).detach())
    list(new_trainer(tmp_path, corrector, steps=100).run())
    corrector.module.eval()
    assert float(corrector_loss(corrector, heldout, 1.0).detach()) < before - 0.25
    trained = load_corrector(
        name, tmp_path / "checkpoint", embedding=EMBEDDING, drafter_fingerprint="drafter-a"
    )
    assert accepted_greedily(NoneCorrector(), heldout).acceptance_length < 3.1
    best = oracle(heldout).acceptance_length
    assert accepted_greedily(trained, heldout).acceptance_length > 0.95 * best
    if isinstance(trained, DSparkCorrector):
        confidences_are_the_chance_of_acceptance(trained, heldout)


def confidences_are_the_chance_of_acceptance(trained: DSparkCorrector, heldout: Blocks) -> None:
    """Where the draft is certain and right, the target's own certainty is the overlap."""
    lattice = heldout.lattice()
    confidences = trained.confidences(lattice, trained.correct(lattice))[:, 1:3]
    family = heldout.gold_ids[:, 0] % NUM_CANDIDATES
    assert confidences[family == 0].mean() > 0.8
    assert confidences[family == 1].mean() < 0.6


@pytest.mark.parametrize("name", NAMES)
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


@pytest.mark.parametrize("name", NAMES)
def test_shorter_blocks_teach_the_same_beside_longer_ones(name):
    """What pads them is no position that a corrector could read."""
    corrector, short = new_corrector(name), bigram_blocks(64, 5)
    with torch.no_grad():
        for parameter in corrector.module.parameters():
            parameter.normal_(0, 0.3)
    corrector.module.eval()
    loss = corrector_loss(corrector, short, 0.5)
    torch.testing.assert_close(corrector_loss(corrector, short.padded(7), 0.5), loss)
