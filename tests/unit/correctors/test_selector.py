"""DFlash2's candidate selector: its published tensors, its formula, and the reduced codebooks."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.dflash2.selector import CandidateSelector, SelectorConfig
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.errors import CheckpointError
from tests.unit.correctors.lattices import (
    GREEDY,
    REJECTION,
    VOCAB,
    random_embedding,
    random_lattice,
)
from tests.unit.correctors.untrained import (
    DRAFT_IDS,
    inference,
    random_corrector,
    randomised,
    source,
    untrained,
)

BELONGING = Belonging(embedding_fingerprint(random_embedding()), "drafter-a")


def test_names_and_shapes_are_the_published_ones():
    with torch.device("meta"):
        selector = CandidateSelector(SelectorConfig(6656, 202048, 202048, selector_rank=256))
    assert {name: tuple(t.shape) for name, t in selector.state_dict().items()} == {
        "candidate_selector.predecessor_codebook": (202048, 256),
        "candidate_selector.successor_codebook": (202048, 256),
        "candidate_selector.hidden_projection.weight": (256, 6656),
    }


def test_a_reduced_vocabulary_has_one_more_row_and_its_map(tmp_path):
    random_corrector("dflash2-selector").save(tmp_path, BELONGING)
    tensors = load_file(tmp_path / "model.safetensors")
    codes = len(DRAFT_IDS) + 1
    assert {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()} == {
        "candidate_selector.predecessor_codebook": ((codes, 6), torch.bfloat16),
        "candidate_selector.successor_codebook": ((codes, 6), torch.bfloat16),
        "candidate_selector.hidden_projection.weight": ((6, 12), torch.bfloat16),
        "d2t": ((len(DRAFT_IDS),), torch.int64),
    }
    assert torch.equal(tensors["d2t"] + torch.arange(len(DRAFT_IDS)), DRAFT_IDS)
    options = json.loads((tmp_path / "config.json").read_text())["corrector"]
    assert options == {
        "hidden_size": 12,
        "vocab_size": VOCAB,
        "draft_vocab_size": len(DRAFT_IDS),
        "selector_rank": 6,
        "selector_top_k": 5,
    }

    tensors["d2t"][3] += VOCAB
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="d2t does not map into the target's vocabulary"):
        load_corrector("dflash2-selector", tmp_path, embedding=random_embedding())


def test_an_untrained_selector_returns_the_draft_as_it_is():
    lattice = random_lattice([GREEDY] * 4 + [REJECTION])
    draft = inference(untrained("dflash2-selector")).correct(lattice)
    assert torch.equal(draft.token_ids[:4], lattice.candidate_ids[:4, :, 0])
    assert draft.draft_probs is not None
    plain = (lattice.candidate_logits[4] / REJECTION.temperature).softmax(-1)
    torch.testing.assert_close(draft.draft_probs[4], plain)


@pytest.mark.parametrize("reduced", [True, False])
@torch.no_grad()
def test_scores_are_the_published_formula_pair_by_pair(reduced):
    ids = DRAFT_IDS if reduced else None
    trainable = randomised(
        TRAINABLE["dflash2-selector"](source("dflash2-selector", vocab_ids=ids)), seed=3
    )
    weights = {
        name.removeprefix("candidate_selector."): tensor
        for name, tensor in trainable.module.state_dict().items()
    }
    lattice = random_lattice([GREEDY] * 2, num_positions=3)
    pairs = inference(trainable).pair_scores(lattice)

    def row(token: int) -> int:
        if ids is None:
            return token
        return ids.tolist().index(token) if token in ids else len(ids)

    num_shared = 0
    for r in range(2):
        for t in range(3):
            gate = weights["hidden_projection.weight"] @ lattice.hidden[r, t]
            previous = [lattice.headers[r].anchor_id] if t == 0 else lattice.candidate_ids[r, t - 1]
            for i, a in enumerate(map(int, previous)):
                scores = pairs.after(t, torch.tensor([i, i]))[r]
                for j, b in enumerate(lattice.candidate_ids[r, t].tolist()):
                    left = weights["predecessor_codebook"][row(a)] * gate
                    expected = (
                        lattice.candidate_logits[r, t, j]
                        + left @ (weights["successor_codebook"][row(b)])
                    )
                    torch.testing.assert_close(scores[j], expected)
                num_shared += ids is not None and row(a) == len(ids)
    assert bool(num_shared) == reduced
