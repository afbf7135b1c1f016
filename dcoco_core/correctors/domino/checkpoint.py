"""Saving and loading Domino heads."""

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
from dcoco_core.correctors.domino.corrector import DominoCorrector
from dcoco_core.correctors.domino.head import DominoConfig, DominoHead
from dcoco_core.correctors.draft_vocabulary import require_map, require_size

ARCHITECTURE = "DominoHead"


def save_domino(folder: Path, head: DominoHead, belonging: Belonging) -> None:
    """Writes `head` as a checkpoint that load_domino reads."""
    save_checkpoint(folder, ARCHITECTURE, asdict(head.config), head, belonging)


def load_domino(
    folder: Path, embedding: torch.Tensor, drafter_fingerprint: str | None = None
) -> DominoCorrector:
    """The corrector, computing in fp32 on the device of the target's embedding [V, H].

    Raises:
        CheckpointError: files that are missing or damaged, or a checkpoint made for another
            target or drafter.
    """
    config = read_config(folder, ARCHITECTURE, DominoConfig, embedding, drafter_fingerprint)
    path = folder / CONFIG_FILE
    sizes = (config.vocab_size, config.hidden_size)
    require_equal(path, "(vocab_size, hidden_size)", sizes, tuple(embedding.shape))
    require_size(path, config.draft_vocab_size, config.vocab_size)
    head = DominoHead(config)
    load_parameters(head, folder)
    if config.is_reduced:
        require_map(folder / WEIGHTS_FILE, head.d2t, config.vocab_size)
    return DominoCorrector(head.to(embedding.device).eval(), embedding)
