"""Causal attention of packed rows over a slot cache, in four formulations of one meaning.

Each class is a plan made once per forward and called once per layer: it writes the new keys and
values of all rows into the cache and lets every query see its own slot up to its own position.

- `RowAttention`: one kernel call a row, on views of the cache; nothing is copied or padded.
- `PaddedAttention`: one kernel call for all rows, padded to the longest, for accelerators.
- `HostAttention`: the second for short rows and the first for long ones, for CPUs.
- `ExactAttention`: fixed tiles, so that a query's result does not depend on its company.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn import functional

from dcoco_core.kv_cache import SlotCache
from dcoco_core.target.interface import PackedRows

QUERY_TILE = 16  # tokens
KEY_TILE = 64  # positions, counted from the sequence's first
_MAX_SPAN = 1.5  # slots read in place, for each one that has a row
_SHORT_ROW = 16  # tokens; longer rows would be mostly padding for the others
_MIN_PADDED_ROWS = 4


class Attention(Protocol):
    """One forward's attention, called for each layer in turn."""

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Attends.

        Args:
            layer: index of the block.
            queries: [N, num_heads, head_dim], rotated.
            keys: [N, num_kv_heads, head_dim], rotated.
            values: [N, num_kv_heads, head_dim].

        Returns:
            [N, num_heads * head_dim].
        """
        ...


class PackedIndex:
    """Where each of the N packed tokens goes: `slots` [N] and `positions` [N]."""

    def __init__(self, rows: PackedRows, device: torch.device) -> None:
        starts, slots = torch.tensor(rows.starts), torch.tensor(rows.slots)
        counts = torch.tensor(rows.counts)
        firsts = counts.cumsum(0) - counts  # index of each row's first token
        shift = (starts - firsts).repeat_interleave(counts)
        self.positions = (torch.arange(int(counts.sum())) + shift).to(device)
        self.slots = slots.repeat_interleave(counts).to(device)


class RowAttention:
    """Row by row with the fused kernel."""

    def __init__(self, rows: PackedRows, index: PackedIndex, cache: SlotCache) -> None:
        self._rows = rows
        self._index = index
        self._cache = cache
        self._masks = [
            None if count == 1 else _causal_mask(start, count)
            for start, count in zip(rows.starts, rows.counts, strict=True)
        ]

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See `Attention`."""
        self._cache.write_packed(layer, self._index.slots, self._index.positions, keys, values)
        return self.attend(layer, queries)

    def attend(self, layer: int, queries: torch.Tensor) -> torch.Tensor:
        """Attends to what the cache holds; its keys and values are written already."""
        rows = self._rows
        parts = []
        for row, part in enumerate(queries.split(rows.counts)):
            length = rows.starts[row] + rows.counts[row]
            seen_keys, seen_values = self._cache.view(layer, rows.slots[row], length)
            mixed = functional.scaled_dot_product_attention(
                part.transpose(0, 1).unsqueeze(0),
                seen_keys.unsqueeze(0),
                seen_values.unsqueeze(0),
                attn_mask=self._masks[row],
                enable_gqa=True,
            )
            parts.append(mixed[0].transpose(0, 1).flatten(1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class PaddedAttention:
    """All rows in one call: queries padded to the most new tokens, keys to the longest slot.

    The query heads that share a key head are folded into the queries, so that its keys are read
    once. When the slots lie close together the cache is read in place, and a slot between them
    that has no row is computed for nothing.
    """

    def __init__(self, rows: PackedRows, index: PackedIndex, cache: SlotCache) -> None:
        device = index.slots.device
        slots = torch.tensor(rows.slots, device=device)
        starts = torch.tensor(rows.starts, device=device)
        counts = torch.tensor(rows.counts, device=device)
        self._index = index
        self._cache = cache
        self._length = max(map(sum, zip(rows.starts, rows.counts, strict=True)))
        self._num_queries = max(rows.counts)
        first, num_rows = min(rows.slots), len(rows.slots)
        span = max(rows.slots) + 1 - first
        self._source: slice | torch.Tensor
        if span <= _MAX_SPAN * num_rows:
            self._source, seats, self._num_seats = slice(first, first + span), slots - first, span
        else:
            self._source, seats = slots, torch.arange(num_rows, device=device)
            self._num_seats = num_rows
        rows_of = torch.arange(num_rows, device=device).repeat_interleave(counts)
        self._seats_of = seats[rows_of]
        self._places_of = index.positions - starts[rows_of]
        places = torch.arange(self._num_queries, device=device)
        # Padding queries repeat the row's last position, so no softmax is over nothing.
        last_seen = torch.zeros(self._num_seats, self._num_queries, dtype=torch.long, device=device)
        last_seen[seats] = starts[:, None] + places.minimum(counts[:, None] - 1)
        key_positions = torch.arange(self._length, device=device)
        self._seen = (key_positions <= last_seen[..., None]).unsqueeze(1)  # [seats, 1, C, T]

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See `Attention`."""
        self._cache.write_packed(layer, self._index.slots, self._index.positions, keys, values)
        return self.attend(layer, queries)

    def attend(self, layer: int, queries: torch.Tensor) -> torch.Tensor:
        """Attends to what the cache holds; its keys and values are written already."""
        num_kv = self._cache.shape.num_kv_heads
        group = queries.shape[1] // num_kv
        padded = queries.new_zeros(self._num_seats, self._num_queries, *queries.shape[1:])
        padded[self._seats_of, self._places_of] = queries
        folded = padded.unflatten(2, (num_kv, group)).permute(0, 2, 3, 1, 4).flatten(2, 3)
        mixed = functional.scaled_dot_product_attention(
            folded,
            self._cache.keys[layer][self._source, :, : self._length],
            self._cache.values[layer][self._source, :, : self._length],
            attn_mask=self._seen.repeat(1, 1, group, 1),
        )
        unfolded = mixed.unflatten(2, (group, self._num_queries)).permute(0, 3, 1, 2, 4)
        output: torch.Tensor = unfolded[self._seats_of, self._places_of].flatten(1)
        return output


class HostAttention:
    """For CPUs: many short rows (decoding, drafts) in one padded call, the others row by row."""

    def __init__(self, rows: PackedRows, index: PackedIndex, cache: SlotCache) -> None:
        self._index = index
        self._cache = cache
        short = [row for row, count in enumerate(rows.counts) if count <= _SHORT_ROW]
        if len(short) < _MIN_PADDED_ROWS:
            short = []
        long = [row for row in range(len(rows.counts)) if row not in set(short)]
        row_of = torch.arange(len(rows.counts)).repeat_interleave(torch.tensor(rows.counts))
        self._parts: list[tuple[torch.Tensor | slice, RowAttention | PaddedAttention]] = []
        for kind, chosen in ((PaddedAttention, short), (RowAttention, long)):
            if chosen:
                part = _pick(rows, chosen)
                tokens: torch.Tensor | slice = slice(None)
                if len(chosen) < len(rows.counts):
                    tokens = torch.isin(row_of, torch.tensor(chosen)).nonzero()[:, 0]
                plan = kind(part, PackedIndex(part, index.slots.device), cache)
                self._parts.append((tokens, plan))

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See `Attention`."""
        self._cache.write_packed(layer, self._index.slots, self._index.positions, keys, values)
        if len(self._parts) == 1:
            return self._parts[0][1].attend(layer, queries)
        mixed = queries.new_empty(queries.shape[0], queries.shape[1] * queries.shape[2])
        for tokens, plan in self._parts:
            mixed[tokens] = plan.attend(layer, queries[tokens])
        return mixed


class ExactAttention:
    """Attention whose every product has one shape, whatever is computed together.

    Queries go in tiles of QUERY_TILE tokens, keys in tiles of KEY_TILE positions at fixed places.
    Scores, weights and their products with the values are computed tile by tile and summed from
    the first tile on; a tile that a query does not see adds exact zeros. The maximum is exact in
    any order. So a query's result depends on its slot and its position only.
    """

    def __init__(self, rows: PackedRows, index: PackedIndex, cache: SlotCache) -> None:
        self._rows = rows
        self._index = index
        self._cache = cache

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See `Attention`; rows past the packed tokens are padding and come back as zeros."""
        rows, index, cache = self._rows, self._index, self._cache
        num_tokens = index.slots.shape[0]
        cache.write_packed(
            layer, index.slots, index.positions, keys[:num_tokens], values[:num_tokens]
        )
        parts = []
        for row, part in enumerate(queries[:num_tokens].split(rows.counts)):
            start = rows.starts[row]
            for first, tile in enumerate(part.split(QUERY_TILE)):
                parts.append(
                    self._attend_tile(layer, rows.slots[row], start + first * QUERY_TILE, tile)
                )
        return functional.pad(torch.cat(parts), (0, 0, 0, queries.shape[0] - num_tokens))

    def _attend_tile(
        self, layer: int, slot: int, start: int, queries: torch.Tensor
    ) -> torch.Tensor:
        """Up to QUERY_TILE queries [count, num_heads, d] from position `start` on."""
        count, num_heads, head_dim = queries.shape
        num_kv = self._cache.shape.num_kv_heads
        group = num_heads // num_kv
        num_tiles = -(-(start + count) // KEY_TILE)
        keys, values = (
            tensor.reshape(num_kv * num_tiles, KEY_TILE, head_dim)
            for tensor in self._cache.view(layer, slot, num_tiles * KEY_TILE)
        )
        padded = functional.pad(queries, (0, 0, 0, 0, 0, QUERY_TILE - count))
        grouped = padded.view(QUERY_TILE, num_kv, group, head_dim).permute(1, 2, 0, 3)
        tiled = grouped.reshape(num_kv, 1, group * QUERY_TILE, head_dim)
        tiled = tiled.expand(-1, num_tiles, -1, -1).reshape(-1, group * QUERY_TILE, head_dim)
        scores = torch.bmm(tiled, keys.transpose(1, 2)).mul_(head_dim**-0.5)
        scores = scores.view(num_kv, num_tiles, group, QUERY_TILE, KEY_TILE)
        scores.masked_fill_(_future_tiles(start, num_tiles), float("-inf"))
        weights = scores.sub_(scores.amax(dim=(1, 4), keepdim=True)).exp_()
        totals = _sum_tiles(weights.sum(-1, keepdim=True))
        mixed = torch.bmm(weights.view(-1, group * QUERY_TILE, KEY_TILE), values)
        mixed = mixed.view(num_kv, num_tiles, group, QUERY_TILE, head_dim)
        mixed = _sum_tiles(mixed) / totals
        return mixed.permute(2, 0, 1, 3).reshape(QUERY_TILE, num_heads * head_dim)[:count]


def _pick(rows: PackedRows, chosen: list[int]) -> PackedRows:
    return PackedRows(
        *(tuple(field[row] for row in chosen) for field in (rows.slots, rows.starts, rows.counts))
    )


def _sum_tiles(tiles: torch.Tensor) -> torch.Tensor:
    """[num_kv, num_tiles, ...] to [num_kv, ...], strictly from the first tile to the last."""
    total = tiles[:, 0]
    for tile in tiles.unbind(1)[1:]:
        total = total + tile
    return total


def _future_tiles(start: int, num_tiles: int) -> torch.Tensor:
    """Which (tile, query, key) a query must not see, [num_tiles, 1, QUERY_TILE, KEY_TILE]."""
    key_positions = torch.arange(num_tiles * KEY_TILE).view(num_tiles, 1, 1, KEY_TILE)
    return key_positions > torch.arange(start, start + QUERY_TILE).view(QUERY_TILE, 1)


def _causal_mask(start: int, count: int) -> torch.Tensor:
    """[count, start + count], true where a new token may look."""
    return torch.ones(count, start + count, dtype=torch.bool).tril(start)
