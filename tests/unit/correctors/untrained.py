"""Correctors by name, small, with random weights that matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from dcoco_core.correctors.trainable import TrainableCorrector, TrainingSource
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.correctors.viterbi import PairCorrector
from tests.unit.correctors.lattices import NUM_CANDIDATES, VOCAB, random_embedding

PAIR_CORRECTORS = ("dcoco", "dcoco-paper", "dflash2-selector", "lilicorr")
SMALL: Mapping[str, Mapping[str, str]] = {
    "dcoco": {"candidate_size": "8", "pair_size": "7", "mlp_size": "10"},
    "dflash2-selector": {"selector_rank": "6"},
    "lilicorr": {
        "lilicorr_hidden_size": "8",
        "lilicorr_num_heads": "2",
        "lilicorr_factor_dim": "6",
    },
}
# Two of three tokens can be proposed; anchors and, in random lattices, candidates are any.
DRAFT_IDS = torch.tensor([i for i in range(VOCAB) if i % 3])


def source(name: str, design: Mapping[str, str] | None = None, **changes: Any) -> TrainingSource:
    fields: dict[str, Any] = {
        "embedding": random_embedding(),
        "lm_head": random_embedding(),
        "vocab_ids": DRAFT_IDS,
        "num_candidates": NUM_CANDIDATES,
        "max_positions": 6,
        "design": {**SMALL.get(name, {}), **(design or {})},
    }
    return TrainingSource(**fields | changes)


def randomised(corrector: TrainableCorrector, seed: int = 2) -> TrainableCorrector:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in corrector.module.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    corrector.module.eval()
    return corrector


def untrained(name: str, design: Mapping[str, str] | None = None) -> TrainableCorrector:
    torch.manual_seed(0)
    return TRAINABLE[name](source(name, design))


def random_corrector(name: str, design: Mapping[str, str] | None = None) -> TrainableCorrector:
    return randomised(untrained(name, design))


def inference(corrector: TrainableCorrector) -> PairCorrector:
    return cast(PairCorrector, corrector.inference())
