"""Saving and loading LiLiCorr correctors."""

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
from dcoco_core.correctors.lilicorr.corrector import LiLiCorrCorrector
from dcoco_core.correctors.lilicorr.head import LiLiCorr, LiLiCorrConfig, LiLiCorrHead
from dcoco_core.errors import CheckpointError

ARCHITECTURE = "LiLiCorr"


def save_lilicorr(folder: Path, module: LiLiCorr, belonging: Belonging) -> None:
    """Writes `module` as a checkpoint that load_lilicorr reads."""
    save_checkpoint(folder, ARCHITECTURE, asdict(module.config), module, belonging)


def load_lilicorr(
    folder: Path, embedding: torch.Tensor, drafter_fingerprint: str | None = None
) -> LiLiCorrCorrector:
    """The corrector, computing in fp32 on the device of the target's embedding [V, H].

    Raises:
        CheckpointError: files that are missing or damaged, or a checkpoint made for another
            target or drafter.
    """
    config = read_config(folder, ARCHITECTURE, LiLiCorrConfig, embedding, drafter_fingerprint)
    path = folder / CONFIG_FILE
    require_equal(path, "hidden_size", config.hidden_size, embedding.shape[1])
    problem = shape_problem(config)
    if problem is not None:
        raise CheckpointError(f"{path}: {problem}")
    module = LiLiCorr(config)
    load_parameters(module, folder)
    head = module.to(embedding.device).eval().lilicorr
    return LiLiCorrCorrector(head, project_tokens(head, embedding))


def shape_problem(config: LiLiCorrConfig) -> str | None:
    """What is wrong with the sizes of a head, if anything is."""
    if config.lilicorr_hidden_size % config.lilicorr_num_heads:
        return (
            f"lilicorr_hidden_size is {config.lilicorr_hidden_size}, "
            f"no multiple of lilicorr_num_heads, {config.lilicorr_num_heads}"
        )
    if config.block_size < 2:
        return f"block_size must be at least 2, got {config.block_size}"
    return None


@torch.inference_mode()
def project_tokens(head: LiLiCorrHead, embedding: torch.Tensor) -> torch.Tensor:
    """[V, d] token states of the whole vocabulary, in pieces to spare memory."""
    return torch.cat([head.token_states(rows) for rows in torch.split(embedding, 8192)])
