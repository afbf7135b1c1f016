"""From a folder to a TargetModel, fused where we have the architecture, adapted where not."""

from __future__ import annotations

from pathlib import Path

import torch

from dcoco_core.errors import ConfigError
from dcoco_core.registry import unknown_name
from dcoco_core.target.folder import check_folder, read_json
from dcoco_core.target.interface import TargetModel
from dcoco_core.target.linear import Numerics
from dcoco_core.target.llama import load_llama
from dcoco_core.target.llama_config import (
    FUSED_ARCHITECTURES,
    LlamaConfig,
    architecture_of,
    is_fused,
)

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
        ConfigError: unknown dtype or numerics, or "exact" where it is not offered.
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
    if numerics == "exact":
        raise ConfigError(
            f"numerics 'exact' covers {', '.join(sorted(FUSED_ARCHITECTURES))}; {folder.name} is "
            f"a {architecture_of(config) or 'model of unnamed architecture'}. Use 'fast'."
        )
    # Imported only where needed: transformers takes seconds.
    from dcoco_core.target.adapter import load_adapted

    return load_adapted(folder, dtype=DTYPES[dtype], device=device)
