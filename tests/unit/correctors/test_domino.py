"""Domino's head: its published tensors, and its computation against torch's own GRU."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.domino.head import DominoConfig, DominoHead
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.errors import ConfigError
from tests.unit.correctors.lattices import GREEDY, NUM_CANDIDATES, VOCAB, random_embedding
from tests.unit.correctors.sequential import draftable_lattice, random_corrector
from tests.unit.correctors.untrained import DRAFT_IDS, source

BELONGING = Belonging(embedding_fingerprint(random_embedding()), "drafter-a")


def test_names_and_shapes_are_the_published_ones():
    head = DominoHead(DominoConfig(4096, 999, 999, emb_dim=256, gru_hidden_dim=1024))
    assert {name: tuple(t.shape) for name, t in head.state_dict().items()} == {
        "prefix_gru.weight_ih_l0": (3072, 4096),
        "prefix_gru.weight_hh_l0": (3072, 1024),
        "embed_proj.0.weight": (256, 5120),
        "embed_proj.2.weight": (999, 256),
    }


def test_the_default_size_keeps_the_published_proportion():
    head = DominoHead(DominoConfig(576, 49152, 8192))
    assert sum(p.numel() for p in head.parameters()) == 1_216_512


def test_a_checkpoint_is_bf16_with_the_published_keys_and_the_map(tmp_path):
    random_corrector("domino").save(tmp_path, BELONGING)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["embed_proj.2.weight"].shape == (len(DRAFT_IDS), 7)
    assert torch.equal(tensors.pop("d2t") + torch.arange(len(DRAFT_IDS)), DRAFT_IDS)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "config.json").read_text())["corrector"] == {
        "hidden_size": 12,
        "vocab_size": VOCAB,
        "draft_vocab_size": len(DRAFT_IDS),
        "emb_dim": 7,
        "gru_hidden_dim": 9,
        "pure_draft_prefix_len": 1,
        "shift_label": True,
        "projector_type": "domino",
        "num_candidates": NUM_CANDIDATES,
    }


@torch.no_grad()
def test_one_step_is_that_of_torchs_gru():
    head = random_corrector("domino").module
    assert isinstance(head, DominoHead)
    embedded = torch.randn(3, 5, 12, generator=torch.Generator().manual_seed(3))
    expected, _ = head.prefix_gru(embedded)
    state = torch.zeros(3, 9)
    for position in range(5):
        state = head.next_state(head.token_inputs(embedded[:, position]), state)
        torch.testing.assert_close(state, expected[:, position])


@torch.no_grad()
def test_scores_equal_a_plain_reading_of_the_paper():
    """Per row and position: the whole prefix through the GRU, the whole draft vocabulary scored."""
    corrector = random_corrector("domino")
    w = corrector.module.state_dict()
    gru = nn.GRUCell(12, 9, bias=False)
    gru.load_state_dict({f"weight_{k}": w[f"prefix_gru.weight_{k}_l0"] for k in ("ih", "hh")})
    lattice = draftable_lattice([GREEDY] * 3)
    gold = lattice.candidate_ids[..., 2]
    scores = corrector.scores(lattice, gold, *torch.ones(3, 6).nonzero(as_tuple=True))
    for r in range(3):
        prefix = [lattice.headers[r].anchor_id, *gold[r].tolist()]
        for k in range(6):
            expected = lattice.candidate_logits[r, k].clone()
            if k >= 1:
                state = torch.zeros(1, 9)
                for token in prefix[: k + 1]:
                    state = gru(random_embedding()[[token]], state)
                joined = torch.cat([lattice.hidden[r, k], state[0]])
                biases = w["embed_proj.2.weight"] @ F.silu(w["embed_proj.0.weight"] @ joined)
                for rank, token in enumerate(lattice.candidate_ids[r, k].tolist()):
                    expected[rank] += biases[DRAFT_IDS.tolist().index(token)]
            torch.testing.assert_close(scores.view(3, 6, -1)[r, k], expected)


def test_the_alignment_is_the_drafters(tmp_path):
    corrector = TRAINABLE["domino"](source("domino", shift_label=False))
    corrector.save(tmp_path, BELONGING)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["corrector"]["shift_label"] is False
    with pytest.raises(ConfigError, match="shift_label follows from the run"):
        TRAINABLE["domino"](source("domino", {"shift_label": "true"}))
