"""DSpark's heads: their published tensors and formulas, and what the confidence may read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.dspark.corrector import DSparkCorrector
from dcoco_core.correctors.dspark.heads import DSparkConfig, DSparkHeads
from dcoco_core.correctors.trainable import WithOwnLoss
from dcoco_core.errors import ConfigError
from tests.unit.correctors.lattices import (
    GREEDY,
    NUM_CANDIDATES,
    REJECTION,
    VOCAB,
    random_embedding,
)
from tests.unit.correctors.sequential import DSPARK, draftable_lattice, random_corrector
from tests.unit.correctors.untrained import DRAFT_IDS

BELONGING = Belonging(embedding_fingerprint(random_embedding()), "drafter-a")
R = 6  # rank
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "vanilla": {},
    "gated": {
        "markov_head.gate_proj.weight": (256, 4352),
        "markov_head.gate_proj.bias": (256,),
    },
    "rnn": {
        "markov_head.joint_proj.weight": (768, 4608),
        "markov_head.joint_proj.bias": (768,),
    },
}


@pytest.mark.parametrize("head_type", ["vanilla", "gated", "rnn"])
def test_names_and_shapes_are_the_published_ones(head_type):
    heads = DSparkHeads(DSparkConfig(4096, 999, 999, head_type, markov_rank=256))
    assert {name: tuple(t.shape) for name, t in heads.state_dict().items()} == {
        "markov_head.markov_w1.weight": (999, 256),
        "markov_head.markov_w2.weight": (999, 256),
        "confidence_head.proj.weight": (1, 4352),
        "confidence_head.proj.bias": (1,),
        **SHAPES[head_type],
    }


@pytest.mark.parametrize(
    ("head_type", "count"), [("vanilla", 1_049_281), ("gated", 1_090_305), ("rnn", 1_184_641)]
)
def test_the_default_size_stays_small(head_type, count):
    heads = DSparkHeads(DSparkConfig(576, 49152, 8192, head_type))
    assert sum(p.numel() for p in heads.parameters()) == count


@pytest.mark.parametrize("name", DSPARK)
def test_a_checkpoint_says_how_w1_is_indexed(name, tmp_path):
    random_corrector(name).save(tmp_path, BELONGING)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["markov_head.markov_w1.weight"].shape == (len(DRAFT_IDS) + 1, R)
    assert tensors["markov_head.markov_w2.weight"].shape == (len(DRAFT_IDS), R)
    assert torch.equal(tensors.pop("d2t") + torch.arange(len(DRAFT_IDS)), DRAFT_IDS)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "config.json").read_text())["corrector"] == {
        "hidden_size": 12,
        "vocab_size": VOCAB,
        "draft_vocab_size": len(DRAFT_IDS),
        "markov_head_type": name.removeprefix("dspark-"),
        "markov_rank": R,
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "markov_w1_rows": "draft_and_other",
        "num_candidates": NUM_CANDIDATES,
    }


def test_w1_of_the_whole_target_is_the_published_form():
    corrector = random_corrector("dspark-vanilla", {"markov_w1_rows": "target"})
    assert corrector.module.state_dict()["markov_head.markov_w1.weight"].shape == (VOCAB, R)


@pytest.mark.parametrize("name", DSPARK)
@torch.no_grad()
def test_scores_equal_a_plain_reading_of_the_paper(name):
    """Per row and position, with the whole draft vocabulary scored."""
    corrector = random_corrector(name)
    w = {k.removeprefix("markov_head."): t for k, t in corrector.module.state_dict().items()}
    lattice = draftable_lattice([GREEDY] * 4)
    gold, draft_ids = lattice.candidate_ids[..., 2], DRAFT_IDS.tolist()
    scores = corrector.scores(lattice, gold, *torch.ones(4, 6).nonzero(as_tuple=True))
    anchors = {header.anchor_id in draft_ids for header in lattice.headers}
    assert anchors == {True, False}
    for r in range(4):
        state = torch.zeros(R)
        for k in range(6):
            left = int(gold[r, k - 1]) if k else lattice.headers[r].anchor_id
            row = w["markov_w1.weight"][draft_ids.index(left) if left in draft_ids else -1]
            hidden = lattice.hidden[r, k]
            latent = row
            if name == "dspark-gated":
                gate = w["gate_proj.weight"] @ torch.cat([hidden, row]) + w["gate_proj.bias"]
                latent = gate.sigmoid() * row
            if name == "dspark-rnn":
                z = w["joint_proj.weight"] @ torch.cat([state, row, hidden]) + w["joint_proj.bias"]
                gate, candidate, output = z.split(R)
                state = gate.sigmoid() * state + (1 - gate.sigmoid()) * candidate.tanh()
                latent = output.tanh()
            biases = w["markov_w2.weight"] @ latent
            expected = lattice.candidate_logits[r, k].clone()
            for rank, token in enumerate(lattice.candidate_ids[r, k].tolist()):
                expected[rank] += biases[draft_ids.index(token)]
            torch.testing.assert_close(scores.view(4, 6, -1)[r, k], expected)


@pytest.mark.parametrize("name", DSPARK)
@torch.no_grad()
def test_a_confidence_reads_the_state_and_the_token_before(name):
    trainable = random_corrector(name)
    corrector, lattice = trainable.inference(), draftable_lattice([GREEDY, REJECTION] * 2)
    assert isinstance(corrector, DSparkCorrector)
    draft = corrector.correct(lattice)
    confidences = corrector.confidences(lattice, draft)
    assert confidences.shape == (4, 6)
    assert confidences.dtype == torch.float32

    w = trainable.module.state_dict()
    row = w["markov_head.markov_w1.weight"][DRAFT_IDS.tolist().index(int(draft.token_ids[1, 2]))]
    logit = w["confidence_head.proj.weight"][0] @ torch.cat([lattice.hidden[1, 3], row])
    expected = (logit + w["confidence_head.proj.bias"][0]).sigmoid()
    torch.testing.assert_close(confidences[1, 3], expected)

    tokens = draft.token_ids.clone()
    tokens[:, 3] = lattice.candidate_ids[:, 3].gather(
        1, lattice.candidate_ids[:, 3].eq(tokens[:, 3:4]).int().argmin(1, keepdim=True)
    )[:, 0]
    changed = corrector.confidences(lattice, replace(draft, token_ids=tokens))
    same = torch.tensor([0, 1, 2, 3, 5])
    assert torch.equal(changed[:, same], confidences[:, same])  # the judged token is not read
    assert (changed[:, 4] != confidences[:, 4]).all()


def test_no_confidences_without_a_confidence_head(tmp_path):
    random_corrector("dspark-rnn", {"enable_confidence_head": "false"}).save(tmp_path, BELONGING)
    assert "confidence_head.proj.bias" not in load_file(tmp_path / "model.safetensors")
    corrector = load_corrector("dspark-rnn", tmp_path, embedding=random_embedding())
    assert isinstance(corrector, DSparkCorrector)
    lattice = draftable_lattice([GREEDY])
    with pytest.raises(ConfigError, match="no confidence head"):
        corrector.confidences(lattice, corrector.correct(lattice))


@torch.no_grad()
def test_the_own_loss_compares_with_the_overlap_of_draft_and_target():
    corrector = random_corrector("dspark-vanilla")
    assert isinstance(corrector, WithOwnLoss)
    w = corrector.module.state_dict()
    scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 0.5]])
    target_probs = torch.tensor([[0.2, 0.5, 0.0], [0.1, 0.9, 0.0]])
    hidden = torch.randn(2, 12, generator=torch.Generator().manual_seed(0))
    rows = w["markov_head.markov_w1.weight"][[0, -1]]
    logits = torch.cat([hidden, rows], 1) @ w["confidence_head.proj.weight"][0]
    confidence = (logits + w["confidence_head.proj.bias"]).sigmoid()
    draft_probs = scores.softmax(-1)
    outside = 1 - target_probs.sum(-1)  # where the draft has nothing
    chance = 1 - 0.5 * ((draft_probs - target_probs).abs().sum(-1) + outside)
    expected = -(chance * confidence.log() + (1 - chance) * (1 - confidence).log()).mean()
    previous_ids = torch.tensor([int(DRAFT_IDS[0]), 0])
    assert 0 not in DRAFT_IDS
    loss = corrector.own_loss(previous_ids, hidden, scores, target_probs)
    torch.testing.assert_close(loss, expected)
