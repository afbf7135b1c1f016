"""The slot cache: preallocated keys and values, one row of the cache per sequence.

The cache knows no lengths. Whoever writes says where (`starts` of PackedRows), and everything past
a sequence's committed length is overwritten by its next write: rolling a draft back is starting the
next write earlier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

ALIGNMENT = 64  # bytes: an AVX-512 register, and what torch gives its own tensors


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The sizes of a slot cache."""

    num_layers: int
    num_slots: int
    num_kv_heads: int
    max_length: int
    head_dim: int


class SlotCache:
    """Keys and values of every layer, each [num_slots, num_kv_heads, max_length, head_dim].

    Memory starts as zeros that the operating system hands out on first touch, so a slot costs what
    its longest sequence used. Values past a sequence's end are always finite: a masked score may be
    multiplied with them.
    """

    def __init__(
        self,
        shape: CacheShape,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape = shape
        sizes = (shape.num_slots, shape.num_kv_heads, shape.max_length, shape.head_dim)
        self.keys = tuple(
            lazy_zeros(sizes, dtype, torch.device(device)) for _ in range(shape.num_layers)
        )
        self.values = tuple(
            lazy_zeros(sizes, dtype, torch.device(device)) for _ in range(shape.num_layers)
        )

    @property
    def num_bytes(self) -> int:
        """Memory when every slot is full, in bytes."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def write(
        self, layer: int, slot: int, start: int, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Puts one row's new keys and values, each [count, num_kv_heads, head_dim], at `start`.

        Raises:
            ValueError: the tokens do not fit into the slot.
        """
        end = start + keys.shape[0]
        self.check_bounds(slot, start, end)
        self.keys[layer][slot, :, start:end] = keys.transpose(0, 1)
        self.values[layer][slot, :, start:end] = values.transpose(0, 1)

    def write_packed(
        self,
        layer: int,
        slots: torch.Tensor,
        positions: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> None:
        """Puts the packed tokens of many rows at once; far cheaper than one write a row.

        Args:
            layer: index of the block.
            slots: [N], the slot of each token.
            positions: [N], where it goes in its slot; see `check_bounds`.
            keys: [N, num_kv_heads, head_dim].
            values: like `keys`.
        """
        self.keys[layer][slots, :, positions] = keys
        self.values[layer][slots, :, positions] = values

    def check_bounds(self, slot: int, start: int, end: int) -> None:
        """Raises ValueError unless positions start..end - 1 of the slot exist."""
        if not (0 <= slot < self.shape.num_slots and start >= 0 and end <= self.shape.max_length):
            raise ValueError(
                f"positions {start}..{end - 1} of slot {slot} are outside the cache: "
                f"{self.shape.num_slots} slots of {self.shape.max_length} positions"
            )

    def view(self, layer: int, slot: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first `length` keys and values of a slot, each [num_kv_heads, length, head_dim]."""
        return self.keys[layer][slot, :, :length], self.values[layer][slot, :, :length]


def lazy_zeros(sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros whose pages the system provides on first touch (torch.zeros touches all of them)."""
    if device.type != "cpu":
        return torch.zeros(sizes, dtype=dtype, device=device)
    num_bytes = math.prod(sizes) * dtype.itemsize
    raw = torch.from_numpy(np.zeros(num_bytes + ALIGNMENT, dtype=np.uint8))
    offset = -raw.data_ptr() % ALIGNMENT
    return raw[offset : offset + num_bytes].view(dtype).view(sizes)
