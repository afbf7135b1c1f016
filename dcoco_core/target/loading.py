"""From a folder to a TargetModel, fused where we have the architecture, adapted where not."""

from __future__ import annotations

from pathlib import Path

import torch

from dcoco_core.errors import CheckpointError, ConfigError
from dcoco_core.registry import unknown_name
from dcoco_core.target.folder import check_folder, read_json
from dcoco_core.target.interface import TargetModel
from dcoco_core.target.linear import Numerics
from dcoco_core.target.llama import load_llama
from dcoco_core.target.llama_config import LlamaConfig, is_fused

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_target(
    folder: Path, *, dtype: str = "float32", numerics: Numerics = "fast", device: str = "cpu"
) -> TargetModel:
    """Loads the target in `folder` (see `resolve_target`).

    Args:
        folder: a local model folder in Hugging Face form.
        dtype: "float32" or "bfloat16", for weights, activations and cache.
        numerics: "exact" makes a token's logits independent of what is computed beside it, at a
            cost in speed; see `dcoco_core.target.linear`.
        device: a torch device.

    Raises:
        CheckpointError: a file is missing or damaged, or a tensor does not fit the config.
        ConfigError: unknown dtype or numerics.
    """
    if dtype not in DTYPES:
        raise ConfigError(unknown_name("dtype", dtype, list(DTYPES)))
    if numerics not in ("fast", "exact"):
        raise ConfigError(unknown_name("numerics", numerics, ["fast", "exact"]))
    check_folder(folder)
    config = read_json(folder / "config.json")
    if is_fused(config):
        return load_llama(
            folder,
            LlamaConfig.from_json(config),
            dtype=DTYPES[dtype],
            device=device,
            numerics=numerics,
        )
    raise CheckpointError(f"{folder}: architecture not supported")
