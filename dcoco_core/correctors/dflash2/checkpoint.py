"""Saving and loading DFlash2 candidate selectors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from dcoco_core.correctors.checkpoint import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    Belonging,
    load_parameters,
    read_config,
    require_equal,
    save_checkpoint,
)
from dcoco_core.correctors.dflash2.corrector import SelectorCorrector
from dcoco_core.correctors.dflash2.selector import CandidateSelector, SelectorConfig
from dcoco_core.correctors.draft_vocabulary import require_map, require_size

ARCHITECTURE = "DFlash2CandidateSelector"


def save_selector(folder: Path, selector: CandidateSelector, belonging: Belonging) -> None:
    """Writes `selector` as a checkpoint that load_selector reads."""
    save_checkpoint(folder, ARCHITECTURE, asdict(selector.config), selector, belonging)


def load_selector(
    folder: Path, embedding: torch.Tensor, drafter_fingerprint: str | None = None
) -> SelectorCorrector:
    """The corrector, computing in fp32 on the device of the target's embedding [V, H].

    Raises:
        CheckpointError: files that are missing or damaged, or a checkpoint made for another
            target or drafter.
    """
    config = read_config(folder, ARCHITECTURE, SelectorConfig, embedding, drafter_fingerprint)
    path = folder / CONFIG_FILE
    require_equal(path, "vocab_size", config.vocab_size, embedding.shape[0])
    require_size(path, config.draft_vocab_size, config.vocab_size)
    selector = CandidateSelector(config)
    load_parameters(selector, folder)
    if config.is_reduced:
        require_map(folder / WEIGHTS_FILE, selector.d2t, config.vocab_size)
    return SelectorCorrector(selector.to(embedding.device).eval())
