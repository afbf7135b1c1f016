"""What every corrector that goes from token to token has to keep."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.none import NoneCorrector
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.errors import CheckpointError
from dcoco_core.types import ContextGap, SamplingParams
from tests.unit.correctors.lattices import (
    COUPLED,
    GREEDY,
    NUM_CANDIDATES,
    REJECTION,
    candidates_of,
    probs_of,
    random_embedding,
    rows_of,
)
from tests.unit.correctors.sequential import (
    DSPARK,
    SEQUENTIAL,
    draftable_lattice,
    random_corrector,
    untrained,
)
from tests.unit.correctors.untrained import randomised, source

MIXED = [GREEDY, REJECTION, COUPLED, GREEDY, REJECTION]
DESIGNS = [
    *((name, {}) for name in SEQUENTIAL),
    ("domino", {"pure_draft_prefix_len": "2"}),
    ("dspark-rnn", {"markov_w1_rows": "target"}),
    ("dspark-gated", {"confidence_head_with_markov": "false"}),
    ("dspark-vanilla", {"enable_confidence_head": "false"}),
]
by_name = pytest.mark.parametrize("name", SEQUENTIAL)
by_design = pytest.mark.parametrize(("name", "design"), DESIGNS, ids=str)
BELONGING = Belonging(embedding_fingerprint(random_embedding()), "drafter-a")
EVERY_PLACE = torch.ones(5, 6).nonzero(as_tuple=True)


@by_design
@torch.no_grad()
def test_teacher_forced_scores_on_the_realised_prefix_are_those_of_the_walk(name, design):
    corrector, lattice = random_corrector(name, design), draftable_lattice(MIXED)
    draft = corrector.inference().correct(lattice)
    scores = corrector.scores(lattice, draft.token_ids.int(), *EVERY_PLACE).view(5, 6, -1)
    probs = (scores / REJECTION.temperature).softmax(-1)
    best = lattice.candidate_ids.gather(-1, scores.argmax(-1, keepdim=True))[..., 0]
    for row, sampling in enumerate(MIXED):
        if sampling is REJECTION:
            torch.testing.assert_close(probs_of(draft)[row], probs[row], atol=1e-5, rtol=1e-4)
        elif sampling is GREEDY:
            assert torch.equal(draft.token_ids[row], best[row])
    assert not torch.equal(draft.token_ids, lattice.candidate_ids[..., 0])


@by_name
@torch.no_grad()
def test_without_a_draft_vocabulary_every_token_has_its_row(name):
    torch.manual_seed(0)
    corrector = randomised(TRAINABLE[name](source(name, {}, vocab_ids=None)))
    lattice = draftable_lattice([REJECTION] * 5)
    draft = corrector.inference().correct(lattice)
    scores = corrector.scores(lattice, draft.token_ids, *EVERY_PLACE).view(5, 6, -1)
    wanted = (scores / REJECTION.temperature).softmax(-1)
    torch.testing.assert_close(probs_of(draft), wanted, atol=1e-5, rtol=1e-4)
    assert "d2t" not in corrector.module.state_dict()


@by_name
def test_an_untrained_head_changes_nothing(name):
    lattice = draftable_lattice([GREEDY] * 5)
    draft = untrained(name).inference().correct(lattice)
    assert torch.equal(draft.token_ids, NoneCorrector().correct(lattice).token_ids)
    scores = untrained(name).scores(lattice, draft.token_ids, *EVERY_PLACE)
    assert torch.equal(scores.view(5, 6, -1), lattice.candidate_logits)


@pytest.mark.parametrize("name", ["domino", "dspark-rnn"])
@torch.no_grad()
def test_the_whole_prefix_is_read(name):
    corrector, lattice = random_corrector(name), draftable_lattice([GREEDY] * 5)
    gold = lattice.candidate_ids[..., 0]
    other = gold.clone()
    other[:, 0] = lattice.candidate_ids[:, 0, 1]
    before = corrector.scores(lattice, gold, *EVERY_PLACE).view(5, 6, -1)
    after = corrector.scores(lattice, other, *EVERY_PLACE).view(5, 6, -1)
    assert torch.equal(before[:, 0], after[:, 0])
    assert (before[:, 3] - after[:, 3]).abs().max() > 1e-4


@by_name
def test_a_row_does_not_depend_on_its_batch_mates(name):
    corrector, lattice = random_corrector(name).inference(), draftable_lattice(MIXED)
    together = corrector.correct(lattice)
    for row in range(len(MIXED)):
        alone = corrector.correct(rows_of(lattice, slice(row, row + 1)))
        assert torch.equal(alone.token_ids[0], together.token_ids[row])
        if alone.draft_probs is not None:
            torch.testing.assert_close(probs_of(alone)[0], probs_of(together)[row])


@by_name
@pytest.mark.parametrize("garbage", [0.0, float("nan")])
def test_padding_changes_nothing_before_it(name, garbage):
    corrector, lattice = random_corrector(name).inference(), draftable_lattice(MIXED)
    behind = torch.tensor([4, 5])
    short = replace(
        lattice,
        headers=tuple(replace(h, num_draft_tokens=4) for h in lattice.headers),
        candidate_ids=lattice.candidate_ids.index_fill(1, behind, 0),
        candidate_logits=lattice.candidate_logits.index_fill(1, behind, garbage),
        hidden=lattice.hidden.index_fill(1, behind, garbage),
    )
    expected, draft = corrector.correct(lattice), corrector.correct(short)
    assert torch.equal(draft.token_ids[:, :4], expected.token_ids[:, :4])
    torch.testing.assert_close(probs_of(draft)[:, :4], probs_of(expected)[:, :4])


@by_name
def test_draft_probs_belong_to_the_rule_of_the_row(name):
    corrector = random_corrector(name).inference()
    draft = corrector.correct(draftable_lattice(MIXED))
    probs = probs_of(draft)
    torch.testing.assert_close(probs.sum(-1), torch.ones(5, 6))
    chosen = candidates_of(draft).eq(draft.token_ids[..., None])
    for row, sampling in enumerate(MIXED):
        if sampling is REJECTION:
            assert (probs[row] < 1).all()
        else:
            assert torch.equal(probs[row], chosen[row].float())
    assert corrector.correct(draftable_lattice([GREEDY, COUPLED])).draft_probs is None


@by_name
def test_sampled_tokens_occur_as_often_as_draft_probs_say(name):
    """Second position, given the token drawn at the first. Deterministic: the keys are fixed."""
    num_rows = 3000
    one = draftable_lattice([REJECTION], num_positions=2)
    lattice = replace(
        one,
        headers=tuple(
            replace(one.headers[0], sampling=SamplingParams(temperature=4.0, noise_key=1000 + key))
            for key in range(num_rows)
        ),
        candidate_ids=one.candidate_ids.expand(num_rows, -1, -1),
        candidate_logits=one.candidate_logits.expand(num_rows, -1, -1),
        log_normalizer=one.log_normalizer.expand(num_rows, -1),
        hidden=one.hidden.expand(num_rows, -1, -1),
        last_context=one.last_context.expand(num_rows, -1),
    )
    draft = random_corrector(name).inference().correct(lattice)
    drawn = candidates_of(draft).eq(draft.token_ids[..., None]).double()
    statistic = 0.0
    for first in range(NUM_CANDIDATES):
        rows = drawn[:, 0, first] == 1
        expected = probs_of(draft)[rows, 1].double().sum(0)
        assert (expected >= 5).all()
        statistic += float(((drawn[rows, 1].sum(0) - expected).square() / expected).sum())
    assert statistic < 54.0  # chi-square, 20 degrees: p = 6e-5


@by_name
def test_one_position_fewer_candidates_half_precision_and_no_rows(name):
    corrector, lattice = random_corrector(name).inference(), draftable_lattice(MIXED)
    assert corrector.correct(draftable_lattice(MIXED, 1)).token_ids.shape == (5, 1)
    few = replace(
        lattice,
        candidate_ids=lattice.candidate_ids[..., :2],
        candidate_logits=lattice.candidate_logits[..., :2],
        hidden=lattice.hidden.bfloat16(),
    )
    assert probs_of(corrector.correct(few)).shape == (5, 6, 2)
    gap = ContextGap("lost", 2, 17)
    empty = corrector.correct(replace(draftable_lattice([GREEDY] * 2, 0), gaps=(gap,)))
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
    lattice = draftable_lattice(MIXED)
    expected, draft = corrector.inference().correct(lattice), loaded.correct(lattice)
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
    with pytest.raises(CheckpointError, match="architectures is"):
        load_corrector("dcoco", tmp_path, embedding=random_embedding())

    path = tmp_path / "config.json"
    text = path.read_text()
    for key, value, message in [
        ("markov_rang", 8, "unknown option 'markov_rang'"),
        ("hidden_size", 13, r"\(vocab_size, hidden_size\) is \(60, 13\), but \(60, 12\)"),
        ("draft_vocab_size", 61, "draft_vocab_size is more than 60"),
        ("draft_vocab_size", 7, "d2t is"),
    ]:
        config = json.loads(text)
        config["corrector"][key] = value
        path.write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match=message):
            load()
    path.write_text(text)

    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    save_file(tensors | {"d2t": tensors["d2t"] + 40}, weights)
    with pytest.raises(CheckpointError, match="d2t does not map"):
        load()
    lost = min(tensors)
    save_file({key: tensor for key, tensor in tensors.items() if key != lost}, weights)
    with pytest.raises(CheckpointError, match=f"{lost} is missing"):
        load()
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="cannot read"):
        load()


def test_one_dspark_head_is_not_loaded_as_another(tmp_path):
    random_corrector(DSPARK[0]).save(tmp_path, BELONGING)
    with pytest.raises(CheckpointError, match="markov_head_type is vanilla, but rnn is needed"):
        load_corrector("dspark-rnn", tmp_path, embedding=random_embedding())


@by_name
def test_training_does_not_change_a_corrector_made_before(name):
    corrector, lattice = random_corrector(name), draftable_lattice([GREEDY] * 8)
    earlier = corrector.inference()
    before = earlier.correct(lattice).token_ids
    with torch.no_grad():
        for parameter in corrector.module.parameters():
            parameter.mul_(-2)
    assert torch.equal(earlier.correct(lattice).token_ids, before)
    assert not torch.equal(corrector.inference().correct(lattice).token_ids, before)
