"""NumPy arrays where the messages say tensor, so that an emulated replica loads no torch.

The messages of dcoco_core.types are plain values; torch appears in their annotations only. What
emulated stages read of a tensor (shape, rows, tolist) both kinds have, so they take either and give
arrays. What computes on a message with torch (envelopes, merging drafts) does not take arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from dcoco_core.types import Draft, RowHeader

if TYPE_CHECKING:
    import torch


def as_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """The array itself, under the name the annotations use."""
    return cast("torch.Tensor", array)


def plain_draft(headers: Sequence[RowHeader] = ()) -> Draft:
    """A draft without proposals, as drafts.plain_draft makes it with torch."""
    return Draft(tuple(headers), as_tensor(np.empty((len(headers), 0), dtype=np.int64)))
