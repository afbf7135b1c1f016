"""The slot cache: what is written where, and what it costs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dcoco_core.kv_cache import ALIGNMENT, CacheShape, SlotCache

SHAPE = CacheShape(num_layers=2, num_slots=3, num_kv_heads=2, max_length=10, head_dim=4)


def test_starts_finite_aligned_and_counted() -> None:
    cache = SlotCache(SHAPE)
    assert cache.num_bytes == 2 * 2 * 3 * 2 * 10 * 4 * 4
    for tensor in (*cache.keys, *cache.values):
        assert tensor.shape == (3, 2, 10, 4)
        assert not tensor.any()
        assert tensor.data_ptr() % ALIGNMENT == 0


def test_bfloat16_takes_half() -> None:
    cache = SlotCache(SHAPE, dtype=torch.bfloat16)
    assert cache.keys[0].dtype == torch.bfloat16
    assert cache.num_bytes * 2 == SlotCache(SHAPE).num_bytes


def test_memory_is_taken_on_first_touch() -> None:
    """A cache of 1 GB exists at once and costs what is written to it."""
    big = CacheShape(num_layers=1, num_slots=64, num_kv_heads=8, max_length=4096, head_dim=64)
    cache = SlotCache(big)
    before = _resident_bytes()
    cache.write(0, 63, 4000, torch.ones(5, 8, 64), torch.ones(5, 8, 64))
    assert _resident_bytes() - before < 100e6
    assert cache.num_bytes > 1e9


def test_write_and_view_one_row() -> None:
    cache = SlotCache(SHAPE)
    keys, values = torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    cache.write(1, 2, 4, keys, values)
    seen_keys, seen_values = cache.view(1, 2, 7)
    assert torch.equal(seen_keys[:, 4:], keys.transpose(0, 1))
    assert torch.equal(seen_values[:, 4:], values.transpose(0, 1))
    assert not seen_keys[:, :4].any()
    assert not cache.keys[0].any()
    assert not cache.keys[1][:2].any()


def test_packed_write_equals_row_writes() -> None:
    by_row, packed = SlotCache(SHAPE), SlotCache(SHAPE)
    keys, values = torch.randn(6, 2, 4), torch.randn(6, 2, 4)
    rows = ((2, 0, 1), (0, 5, 4), (1, 9, 1))  # slot, start, count
    first = 0
    for slot, start, count in rows:
        last = first + count
        by_row.write(0, slot, start, keys[first:last], values[first:last])
        first = last
    slots = torch.tensor([2, 0, 0, 0, 0, 1])
    positions = torch.tensor([0, 5, 6, 7, 8, 9])
    packed.write_packed(0, slots, positions, keys, values)
    assert torch.equal(by_row.keys[0], packed.keys[0])
    assert torch.equal(by_row.values[0], packed.values[0])


@pytest.mark.parametrize(("slot", "start"), [(3, 0), (-1, 0), (0, -1), (0, 9)])
def test_a_write_outside_is_an_error(slot: int, start: int) -> None:
    cache = SlotCache(SHAPE)
    with pytest.raises(ValueError, match="outside the cache: 3 slots of 10 positions"):
        cache.write(0, slot, start, torch.zeros(2, 2, 4), torch.zeros(2, 2, 4))


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
