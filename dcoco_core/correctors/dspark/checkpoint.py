"""Saving and loading DSpark's heads."""

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
from dcoco_core.correctors.draft_vocabulary import require_map, require_size
from dcoco_core.correctors.dspark.corrector import DSparkCorrector
from dcoco_core.correctors.dspark.heads import DSparkConfig, DSparkHeads

ARCHITECTURE = "DSparkHeads"


def save_dspark(folder: Path, heads: DSparkHeads, belonging: Belonging) -> None:
    """Writes `heads` as a checkpoint that load_dspark reads."""
    save_checkpoint(folder, ARCHITECTURE, asdict(heads.config), heads, belonging)


def load_dspark(
    folder: Path, head_type: str, embedding: torch.Tensor, drafter_fingerprint: str | None = None
) -> DSparkCorrector:
    """The corrector, computing in fp32 on the device of the target's embedding [V, H].

    Args:
        folder: the checkpoint.
        head_type: which Markov head it has to hold.
        embedding: of the target.
        drafter_fingerprint: of the drafter, None to accept any.

    Raises:
        CheckpointError: files that are missing or damaged, or a checkpoint made for another
            target or drafter, or with another head.
    """
    config = read_config(folder, ARCHITECTURE, DSparkConfig, embedding, drafter_fingerprint)
    path = folder / CONFIG_FILE
    require_equal(path, "markov_head_type", config.markov_head_type, head_type)
    sizes = (config.vocab_size, config.hidden_size)
    require_equal(path, "(vocab_size, hidden_size)", sizes, tuple(embedding.shape))
    require_size(path, config.draft_vocab_size, config.vocab_size)
    heads = DSparkHeads(config)
    load_parameters(heads, folder)
    if config.is_reduced:
        require_map(folder / WEIGHTS_FILE, heads.d2t, config.vocab_size)
    return DSparkCorrector(heads.to(embedding.device).eval())
