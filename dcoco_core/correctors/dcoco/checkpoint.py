"""Saving and loading DCOCO correctors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from dcoco_core.correctors.checkpoint import (
    CONFIG_FILE,
    Belonging,
    load_parameters,
    read_config,
    require_equal,
    save_checkpoint,
)
from dcoco_core.correctors.dcoco.corrector import DCOCOCorrector
from dcoco_core.correctors.dcoco.scorer import PairScorer, ScorerConfig

ARCHITECTURE = "DCOCOCorrector"


def save_dcoco(folder: Path, scorer: PairScorer, belonging: Belonging) -> None:
    """Writes `scorer` as a checkpoint that load_dcoco reads."""
    save_checkpoint(folder, ARCHITECTURE, asdict(scorer.config), scorer, belonging)


def load_dcoco(
    folder: Path, embedding: torch.Tensor, drafter_fingerprint: str | None = None
) -> DCOCOCorrector:
    """The corrector, computing in fp32 on the embedding's device.

    Raises:
        CheckpointError: files that are missing or damaged, or a checkpoint made for another
            target (by its embedding [V, H]) or drafter.
    """
    scorer = load_scorer(folder, embedding, drafter_fingerprint)
    return DCOCOCorrector(scorer, project_tokens(scorer, embedding))


def load_scorer(
    folder: Path, embedding: torch.Tensor, drafter_fingerprint: str | None = None
) -> PairScorer:
    """The scorer alone, for further training. Arguments and errors as in load_dcoco."""
    config = read_config(folder, ARCHITECTURE, ScorerConfig, embedding, drafter_fingerprint)
    require_equal(folder / CONFIG_FILE, "hidden_size", config.hidden_size, embedding.shape[1])
    scorer = PairScorer(config)
    load_parameters(scorer, folder)
    return scorer.to(embedding.device).eval()


@torch.inference_mode()
def project_tokens(scorer: PairScorer, embedding: torch.Tensor) -> torch.Tensor:
    """[V, D] token states of the whole vocabulary: all that inference keeps of the embedding.

    Done in pieces, so that a large embedding is not held in fp32 as a whole.
    """
    return torch.cat([scorer.token_states(rows) for rows in torch.split(embedding, 8192)])
