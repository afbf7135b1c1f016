"""Corrector checkpoints: model.safetensors in bf16 beside a config.json that says what they fit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from dcoco_core.correctors.options import from_values
from dcoco_core.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    ConfigT = TypeVar("ConfigT", bound=DataclassInstance)
else:
    ConfigT = TypeVar("ConfigT")

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
_NUM_FINGERPRINT_ROWS = 64


@dataclass(frozen=True, slots=True)
class Belonging:
    """What a corrector was trained for: the target's embedding and the drafter's checkpoint."""

    embedding_fingerprint: str
    drafter_fingerprint: str


def embedding_fingerprint(embedding: torch.Tensor) -> str:
    """Identifies a target by the shape and 64 evenly spaced bf16 rows of its embedding [V, H]."""
    rows = torch.linspace(0, embedding.shape[0] - 1, _NUM_FINGERPRINT_ROWS).long()
    sample = embedding[rows.to(embedding.device)].to("cpu", torch.bfloat16).contiguous()
    digest = hashlib.sha256(repr(tuple(embedding.shape)).encode())
    digest.update(sample.view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:16]


def save_checkpoint(
    folder: Path,
    architecture: str,
    options: Mapping[str, int | bool | float | str],
    module: nn.Module,
    belonging: Belonging,
) -> None:
    """Writes both files, each at once, the configuration last."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach()
        .to("cpu", torch.bfloat16 if tensor.is_floating_point() else tensor.dtype)
        .contiguous()
        for name, tensor in module.state_dict().items()
    }
    partial = folder / f"{WEIGHTS_FILE}.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(folder / WEIGHTS_FILE)
    config = {
        "architectures": [architecture],
        "dtype": "bfloat16",
        "embedding_fingerprint": belonging.embedding_fingerprint,
        "drafter_fingerprint": belonging.drafter_fingerprint,
        "corrector": dict(options),
    }
    partial = folder / f"{CONFIG_FILE}.partial"
    partial.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    partial.replace(folder / CONFIG_FILE)


def read_options(
    folder: Path, architecture: str, embedding: torch.Tensor, drafter_fingerprint: str | None
) -> dict[str, Any]:
    """The `corrector` section of config.json, once the checkpoint is known to fit.

    Raises:
        CheckpointError: no readable configuration, another architecture, target or drafter.
    """
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"no corrector checkpoint: {path} is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
    options = config.get("corrector") if isinstance(config, dict) else None
    if not isinstance(options, dict):
        raise CheckpointError(f"{path} has no 'corrector' section")
    require_equal(path, "architectures", config.get("architectures"), [architecture])
    target = embedding_fingerprint(embedding)
    require_equal(path, "embedding_fingerprint", config.get("embedding_fingerprint"), target)
    if drafter_fingerprint is not None:
        stored = config.get("drafter_fingerprint")
        require_equal(path, "drafter_fingerprint", stored, drafter_fingerprint)
    return options


def read_config(
    folder: Path,
    architecture: str,
    config_type: type[ConfigT],
    embedding: torch.Tensor,
    drafter_fingerprint: str | None,
) -> ConfigT:
    """The `corrector` section as a `config_type`. Other arguments and errors as in read_options."""
    options = read_options(folder, architecture, embedding, drafter_fingerprint)
    try:
        return from_values(config_type, options)
    except ConfigError as error:
        raise CheckpointError(f"{folder / CONFIG_FILE}: {error}") from None


def load_parameters(module: nn.Module, folder: Path) -> None:
    """Fills every parameter and buffer of `module`, in its own dtype, from model.safetensors.

    Raises:
        CheckpointError: a damaged file, or tensor names or shapes that differ.
    """
    path = folder / WEIGHTS_FILE
    try:
        tensors = load_file(path)
    except (FileNotFoundError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        require_equal(path, name, found.get(name, "missing"), expected.get(name, "no such tensor"))
    module.load_state_dict(tensors)


def require_equal(path: Path, name: str, found: object, expected: object) -> None:
    """Raises CheckpointError naming both values unless they are equal."""
    if found != expected:
        raise CheckpointError(f"{path}: {name} is {found}, but {expected} is needed")
