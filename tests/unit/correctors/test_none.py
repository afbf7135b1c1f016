from __future__ import annotations

import torch

from dcoco_core.correctors import load_corrector
from tests.unit.correctors.lattices import (
    COUPLED,
    GREEDY,
    REJECTION,
    random_embedding,
    random_lattice,
)


def test_takes_the_first_candidate_of_every_row_and_is_one_hot():
    none = load_corrector("none", embedding=random_embedding())
    lattice = random_lattice([GREEDY, REJECTION, COUPLED])
    draft = none.correct(lattice)
    assert none.num_candidates == 1
    best = lattice.candidate_logits.argmax(-1, keepdim=True)
    assert torch.equal(draft.token_ids, lattice.candidate_ids.gather(-1, best)[..., 0])
    assert draft.draft_probs is None
    assert draft.headers == lattice.headers
