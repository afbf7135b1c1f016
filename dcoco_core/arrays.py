"""NumPy arrays where the messages say tensor, so that an emulated replica loads no torch.

The messages of dcoco_core.types are plain values; torch appears in their annotations only. What
emulated stages read of a tensor (shape, rows, tolist) both kinds have, so they take either and give
arrays. What builds messages for others (drafts, envelopes) makes tensors in a process that has
loaded torch, and arrays in one that has not; stages that compute load it before any message.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from dcoco_core.types import Draft, RowHeader

if TYPE_CHECKING:
    import torch


def is_torch_loaded() -> bool:
    """Whether messages built in this process hold tensors."""
    return "torch" in sys.modules


def as_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """The array itself, under the name the annotations use."""
    return cast("torch.Tensor", array)


def as_array(tensor: object) -> npt.NDArray[Any] | None:
    """What stands under a tensor's name if it is an array; None for a tensor."""
    return tensor if isinstance(tensor, np.ndarray) else None


def plain_draft(headers: Sequence[RowHeader] = ()) -> Draft:
    """A draft without proposals, as drafts.plain_draft makes it with torch."""
    return Draft(tuple(headers), as_tensor(np.empty((len(headers), 0), dtype=np.int64)))


def concatenate(tables: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Tables [R, S] of several S as one [sum of R, largest S], padded on the right with zeros."""
    width = max(table.shape[1] for table in tables)
    return np.concatenate(
        [np.pad(table, ((0, 0), (0, width - table.shape[1]))) for table in tables]
    )
