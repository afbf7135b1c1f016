"""What the drafter holds of every open request: context keys and values, in slots.

Only committed context enters, so a slot's length is the request's committed tokens minus the
pending anchor. Block rows are written behind it for the length of one pass and never counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.model import KeyValue
from dcoco_core.drafters.dflash.patterns import AttentionPattern
from dcoco_core.kv_cache import CacheShape, SlotCache


@dataclass(slots=True)
class HeldContext:
    """A request's slot and how many context rows it holds."""

    slot: int
    generation: int
    num_rows: int = 0


class ContextCache:
    """Slots by request. Full slots are no error: `hold` answers None and the row goes undrafted."""

    def __init__(
        self, config: DFlashConfig, num_slots: int, max_positions: int, dtype: torch.dtype
    ) -> None:
        shape = CacheShape(
            num_layers=config.num_layers,
            num_slots=num_slots,
            num_kv_heads=config.num_kv_heads,
            max_length=max_positions,
            head_dim=config.head_dim,
        )
        self.slots = SlotCache(shape, dtype=dtype)
        self.max_positions = max_positions
        self.last_rows = torch.zeros((num_slots, config.hidden_size), dtype=dtype)
        self._free = list(range(num_slots))[::-1]
        self._held: dict[str, HeldContext] = {}

    def hold(self, request_id: str, generation: int) -> HeldContext | None:
        """The request's slot, empty if it is new or of a newer generation; None if none is free.

        A header of an older generation than the held one is stale and gets None.
        """
        held = self._held.get(request_id)
        if held is not None and held.generation == generation:
            return held
        if held is not None:
            if held.generation > generation:
                return None
            self.release(request_id)
        if not self._free:
            return None
        held = self._held[request_id] = HeldContext(self._free.pop(), generation)
        return held

    def release(self, request_id: str) -> None:
        """Frees the request's slot; unknown ids are ignored."""
        held = self._held.pop(request_id, None)
        if held is not None:
            self._free.append(held.slot)

    def num_rows(self, request_id: str) -> int:
        """Context rows held of a request; 0 for unknown ones."""
        held = self._held.get(request_id)
        return 0 if held is None else held.num_rows

    @property
    def num_free_slots(self) -> int:
        """Requests that can still be held."""
        return len(self._free)

    def append(
        self, held: HeldContext, rows: torch.Tensor, layers: list[KeyValue], columns: slice
    ) -> None:
        """Adds context rows [n, H]; their keys and values are `columns` of `layers`."""
        start = held.num_rows
        for layer, (keys, values) in enumerate(layers):
            self.slots.write(
                layer,
                held.slot,
                start,
                keys[:, columns].transpose(0, 1),
                values[:, columns].transpose(0, 1),
            )
        held.num_rows += len(rows)
        self.last_rows[held.slot] = rows[-1]


class CachedAttend:
    """Attention of one block per row over the row's own slot (implements model.Attend).

    Args:
        cache: holds the context, and behind it, for this pass, the block.
        rows: the slot of every row.
        num_inputs: the block rows that count of every row; what is behind them is padding.
    """

    def __init__(
        self,
        cache: ContextCache,
        rows: list[HeldContext],
        num_inputs: list[int],
        patterns: list[AttentionPattern],
    ) -> None:
        self._cache, self._rows = cache, rows
        self._num_inputs, self._patterns = num_inputs, patterns

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See model.Attend. Each row is computed by itself, so batch mates cannot touch it."""
        mixed = torch.zeros_like(queries)
        slots = self._cache.slots
        for row, (held, count) in enumerate(zip(self._rows, self._num_inputs, strict=True)):
            if count == 0:
                continue
            slots.write(
                layer,
                held.slot,
                held.num_rows,
                keys[row, :, :count].transpose(0, 1),
                values[row, :, :count].transpose(0, 1),
            )
            seen = slots.view(layer, held.slot, held.num_rows + count)
            mask = _mask(self._patterns[layer], held.num_rows, count)
            mixed[row, :, :count] = _attend(queries[row, :, :count], *seen, mask)
        return mixed


def _attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """[heads, Q, hd] over [kv_heads, T, hd]; heads that share keys become rows of one product."""
    num_heads, count, head_dim = queries.shape
    grouped = queries.reshape(keys.shape[0], -1, head_dim)
    if mask is not None:
        mask = mask.repeat(num_heads // keys.shape[0], 1)
    return F.scaled_dot_product_attention(grouped[None], keys[None], values[None], mask).view(
        num_heads, count, head_dim
    )


def _mask(pattern: AttentionPattern, num_context: int, count: int) -> torch.Tensor | None:
    """[count, num_context + count] for causal or windowed layers; None where all is seen."""
    if pattern == AttentionPattern():
        return None
    keys = torch.arange(num_context + count)
    distance = keys[num_context:, None] - keys
    return pattern.restrict(torch.ones_like(distance, dtype=torch.bool), distance)
