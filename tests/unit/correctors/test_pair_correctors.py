"""What every corrector that scores pairs has to keep, whatever scores them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.errors import CheckpointError
from dcoco_core.types import ContextGap
from tests.unit.correctors.lattices import (
    COUPLED,
    GREEDY,
    NUM_CANDIDATES,
    REJECTION,
    candidates_of,
    probs_of,
    random_embedding,
    random_lattice,
    rows_of,
)
from tests.unit.correctors.untrained import PAIR_CORRECTORS, inference, random_corrector

MIXED = [GREEDY, REJECTION, COUPLED, GREEDY, REJECTION]
DESIGNS = [
    *((name, {}) for name in PAIR_CORRECTORS),
    ("dcoco", {"candidate_reads": "embedding", "activation": "relu"}),
    ("dcoco", {"candidate_reads": "hidden", "activation": "gelu"}),
    ("dcoco", {"pair_state": "false"}),
    ("dcoco", {"scalars": "false", "add_base_logit": "false"}),
]
by_name = pytest.mark.parametrize("name", PAIR_CORRECTORS)
by_design = pytest.mark.parametrize(("name", "design"), DESIGNS, ids=str)
BELONGING = Belonging(embedding_fingerprint(random_embedding()), "drafter-a")


@by_design
@torch.no_grad()
def test_teacher_forced_scores_are_those_of_inference(name, design):
    corrector = random_corrector(name, design)
    lattice = random_lattice([GREEDY] * 4)
    ranks = torch.randint(NUM_CANDIDATES, (4, 6), generator=torch.Generator().manual_seed(1))
    gold_ids = lattice.candidate_ids.gather(-1, ranks[..., None])[..., 0].int()
    rows, positions = torch.ones(4, 6).nonzero(as_tuple=True)
    scores = corrector.scores(lattice, gold_ids, rows, positions).view(4, 6, -1)
    pairs = inference(corrector).pair_scores(lattice)
    for position in range(6):
        before = ranks[:, position - 1] if position else torch.zeros(4, dtype=torch.int64)
        torch.testing.assert_close(scores[:, position], pairs.after(position, before))


@by_design
def test_the_draft_follows_the_pair_scores(name, design):
    corrector = inference(random_corrector(name, design))
    lattice = random_lattice([GREEDY] * 8)
    pairs = corrector.pair_scores(lattice)
    rank, expected = torch.zeros(8, dtype=torch.int64), []
    for position in range(6):
        rank = pairs.after(position, rank).argmax(-1)
        expected.append(lattice.candidate_ids[torch.arange(8), position, rank])
    token_ids = corrector.correct(lattice).token_ids
    assert torch.equal(token_ids, torch.stack(expected, 1))
    if design.get("candidate_reads") != "hidden":  # alike candidates differ in log-prob only
        assert not torch.equal(token_ids, lattice.candidate_ids[..., 0])


@by_name
def test_a_row_does_not_depend_on_its_batch_mates(name):
    corrector = inference(random_corrector(name))
    lattice = random_lattice(MIXED)
    together = corrector.correct(lattice)
    for row in range(len(MIXED)):
        alone = corrector.correct(rows_of(lattice, slice(row, row + 1)))
        assert torch.equal(alone.token_ids[0], together.token_ids[row])
        if alone.draft_probs is not None:
            torch.testing.assert_close(probs_of(alone)[0], probs_of(together)[row])


@by_name
@pytest.mark.parametrize("garbage", [0.0, float("nan")])
def test_padding_changes_nothing_before_it(name, garbage):
    corrector = inference(random_corrector(name))
    lattice = random_lattice(MIXED)
    short = replace(
        lattice,
        headers=tuple(replace(h, num_draft_tokens=4) for h in lattice.headers),
        candidate_ids=lattice.candidate_ids.index_fill(1, torch.tensor([4, 5]), 0),
        candidate_logits=lattice.candidate_logits.index_fill(1, torch.tensor([4, 5]), garbage),
        hidden=lattice.hidden.index_fill(1, torch.tensor([4, 5]), garbage),
    )
    cut = replace(
        short,
        candidate_ids=lattice.candidate_ids[:, :4],
        candidate_logits=lattice.candidate_logits[:, :4],
        log_normalizer=lattice.log_normalizer[:, :4],
        hidden=lattice.hidden[:, :4],
    )
    expected, draft = corrector.correct(cut), corrector.correct(short)
    assert torch.equal(draft.token_ids[:, :4], expected.token_ids)
    torch.testing.assert_close(probs_of(draft)[:, :4], probs_of(expected))


@by_name
def test_draft_probs_belong_to_the_rule_of_the_row(name):
    corrector = inference(random_corrector(name))
    lattice = random_lattice(MIXED)
    draft = corrector.correct(lattice)
    probs, candidates = probs_of(draft), candidates_of(draft)
    chosen = candidates.eq(draft.token_ids[..., None])
    ranks = chosen.int().argmax(-1)
    pairs = corrector.pair_scores(lattice)
    for position in range(6):
        before = ranks[:, position - 1] if position else torch.zeros(5, dtype=torch.int64)
        softmax = (pairs.after(position, before) / REJECTION.temperature).softmax(-1)
        for row, sampling in enumerate(MIXED):
            wanted = softmax[row] if sampling is REJECTION else chosen[row, position].float()
            torch.testing.assert_close(probs[row, position], wanted, atol=1e-5, rtol=1e-4)
    assert corrector.correct(random_lattice([GREEDY, COUPLED])).draft_probs is None


@by_name
def test_one_position_fewer_candidates_and_no_rows(name):
    corrector = inference(random_corrector(name))
    assert corrector.correct(random_lattice(MIXED, 1)).token_ids.shape == (5, 1)
    lattice = random_lattice(MIXED)
    few = replace(
        lattice,
        candidate_ids=lattice.candidate_ids[..., :2],
        candidate_logits=lattice.candidate_logits[..., :2],
    )
    assert probs_of(corrector.correct(few)).shape == (5, 6, 2)
    gap = ContextGap("lost", 2, 17)
    empty = corrector.correct(replace(random_lattice([GREEDY] * 2, 0), gaps=(gap,)))
    assert empty.token_ids.shape == (2, 0)
    assert empty.gaps == (gap,)


@by_design
def test_checkpoint_round_trip(name, design, tmp_path):
    corrector = random_corrector(name, design)
    with torch.no_grad():
        for parameter in corrector.module.parameters():
            parameter.copy_(parameter.bfloat16())
    corrector.save(tmp_path, BELONGING)
    loaded = load_corrector(
        name, tmp_path, embedding=random_embedding(), drafter_fingerprint="drafter-a"
    )
    lattice = random_lattice(MIXED)
    expected, draft = inference(corrector).correct(lattice), loaded.correct(lattice)
    assert loaded.num_candidates == NUM_CANDIDATES
    assert torch.equal(draft.token_ids, expected.token_ids)
    assert torch.equal(probs_of(draft), probs_of(expected))


@by_name
def test_a_checkpoint_that_does_not_fit_is_refused_with_the_reason(name, tmp_path):
    random_corrector(name).save(tmp_path, BELONGING)

    def load(seed: int = 1, drafter: str = "drafter-a") -> None:
        embedding = random_embedding(seed)
        load_corrector(name, tmp_path, embedding=embedding, drafter_fingerprint=drafter)

    load()
    with pytest.raises(CheckpointError, match="drafter_fingerprint is drafter-a, but drafter-b"):
        load(drafter="drafter-b")
    with pytest.raises(CheckpointError, match="embedding_fingerprint is"):
        load(seed=9)
    other = "lilicorr" if name != "lilicorr" else "dcoco"
    with pytest.raises(CheckpointError, match="architectures is"):
        load_corrector(other, tmp_path, embedding=random_embedding())

    path = tmp_path / "config.json"
    text = path.read_text()
    config = json.loads(text)
    config["corrector"]["selector_rang"] = 8
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="unknown option 'selector_rang'"):
        load()
    path.write_text(text)

    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    lost = min(tensors)
    save_file({name: tensor for name, tensor in tensors.items() if name != lost}, weights)
    with pytest.raises(CheckpointError, match=f"{lost} is missing"):
        load()
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="cannot read"):
        load()


@by_name
def test_training_does_not_change_a_corrector_made_before(name):
    corrector = random_corrector(name)
    earlier, lattice = inference(corrector), random_lattice([GREEDY] * 8)
    before = earlier.correct(lattice).token_ids
    with torch.no_grad():
        for parameter in corrector.module.parameters():
            parameter.neg_()
    assert torch.equal(earlier.correct(lattice).token_ids, before)
    assert not torch.equal(inference(corrector).correct(lattice).token_ids, before)
