"""Identifies a drafter checkpoint by its content. Imports no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dcoco_core.errors import CheckpointError


def fingerprint_checkpoint(folder: Path) -> str:
    """A content hash of the checkpoint's safetensors files."""
    digest = hashlib.sha256()
    for path in checkpoint_files(folder):
        with path.open("rb") as data:
            digest.update(hashlib.file_digest(data, "sha256").digest())
    return digest.hexdigest()[:16]


def checkpoint_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, in a fixed order. Raises CheckpointError."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"no *.safetensors at {folder}")
    return files
