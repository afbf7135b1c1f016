"""Lattices that the sequential correctors' drafter could have made, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from dcoco_core.correctors.trainable import TrainableCorrector
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.types import Lattice, SamplingParams
from tests.unit.correctors.lattices import NUM_CANDIDATES, random_lattice
from tests.unit.correctors.untrained import DRAFT_IDS, randomised, source

DSPARK = ("dspark-vanilla", "dspark-gated", "dspark-rnn")
SEQUENTIAL = ("domino", *DSPARK)
_SMALL: Mapping[str, Mapping[str, str]] = {
    "domino": {"emb_dim": "7", "gru_hidden_dim": "9"},
    **{name: {"markov_rank": "6"} for name in DSPARK},
}


def draftable_lattice(
    samplings: Sequence[SamplingParams], num_positions: int = 6, seed: int = 0
) -> Lattice:
    """As random_lattice, its candidates from DRAFT_IDS; anchors are any tokens."""
    lattice = random_lattice(samplings, num_positions, seed)
    generator = torch.Generator().manual_seed(seed)
    shape = lattice.candidate_ids.shape[:2]
    chosen = torch.rand(*shape, len(DRAFT_IDS), generator=generator).argsort(-1)
    return replace(lattice, candidate_ids=DRAFT_IDS[chosen[..., :NUM_CANDIDATES]])


def untrained(name: str, design: Mapping[str, str] | None = None) -> TrainableCorrector:
    torch.manual_seed(0)
    return TRAINABLE[name](source(name, {**_SMALL[name], **(design or {})}))


def random_corrector(name: str, design: Mapping[str, str] | None = None) -> TrainableCorrector:
    return randomised(untrained(name, design))
