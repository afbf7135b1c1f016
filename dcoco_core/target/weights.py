"""Reads a folder's safetensors into the shapes a model expects."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from dcoco_core.errors import CheckpointError
from dcoco_core.target.folder import weight_files


class CheckpointTensors:
    """The tensors of a folder by name, each checked for its shape when taken."""

    def __init__(self, folder: Path, *, dtype: torch.dtype, device: torch.device | str) -> None:
        self._folder = folder
        self._dtype = dtype
        self._device = device
        self._handles = {}
        for file in weight_files(folder):
            try:
                handle = safe_open(file, framework="pt", device="cpu")
                handle.__enter__()
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{file} is damaged: {error}") from error
            self._handles.update(dict.fromkeys(handle.keys(), handle))

    def __contains__(self, name: str) -> bool:
        return name in self._handles

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """One tensor, in the wanted dtype and on the wanted device.

        Raises:
            CheckpointError: it is missing or has another shape.
        """
        if name not in self._handles:
            raise CheckpointError(f"{self._folder} has no tensor {name!r}")
        tensor: torch.Tensor = self._handles[name].get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"{self._folder}: {name} has shape {list(tensor.shape)}, config.json asks for "
                f"{list(shape)}"
            )
        return tensor.to(device=self._device, dtype=self._dtype)
