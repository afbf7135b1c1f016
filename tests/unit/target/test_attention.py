"""The four formulations of attention give one answer."""

from __future__ import annotations

import pytest
import torch

from dcoco_core.kv_cache import CacheShape, SlotCache
from dcoco_core.target.attention import (
    Attention,
    ExactAttention,
    HostAttention,
    PackedIndex,
    PaddedAttention,
    RowAttention,
)
from dcoco_core.target.interface import PackedRows

SHAPE = CacheShape(num_layers=1, num_slots=5, num_kv_heads=2, max_length=192, head_dim=8)
NUM_HEADS = 6
ROWS = [
    PackedRows((0,), (0,), (1,)),
    PackedRows((3,), (100,), (16,)),
    PackedRows((4, 0, 2), (0, 63, 150), (40, 2, 17)),
    PackedRows((1, 2, 3, 4), (5, 64, 0, 191), (1, 1, 1, 1)),
    PackedRows((4, 0, 2, 1, 3), (64, 9, 150, 7, 0), (4, 30, 1, 3, 2)),
]
FORMULATIONS = [RowAttention, PaddedAttention, HostAttention, ExactAttention]


def reference(
    rows: PackedRows, cache: SlotCache, queries: torch.Tensor, device: torch.device
) -> torch.Tensor:
    """Query by query, head by head, in float64."""
    index = PackedIndex(rows, device)
    group = NUM_HEADS // SHAPE.num_kv_heads
    outputs = []
    for token, (slot, position) in enumerate(
        zip(index.slots.tolist(), index.positions.tolist(), strict=True)
    ):
        for head in range(NUM_HEADS):
            keys = cache.keys[0][slot, head // group, : position + 1].double()
            values = cache.values[0][slot, head // group, : position + 1].double()
            scores = keys @ queries[token, head].double() * SHAPE.head_dim**-0.5
            outputs.append(scores.softmax(0) @ values)
    return torch.cat(outputs).view(len(index.slots), -1).float()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_equals_the_definition(formulation: type, rows: PackedRows) -> None:
    """The cache is full of a former request's values, which nobody may see."""
    torch.manual_seed(0)
    cache = SlotCache(SHAPE)
    cache.keys[0].normal_(std=3.0)
    cache.values[0].normal_(std=3.0)
    num_tokens = sum(rows.counts)
    queries = torch.randn(num_tokens, NUM_HEADS, 8) * 2
    keys, values = torch.randn(2, num_tokens, 2, 8)
    index = PackedIndex(rows, torch.device("cpu"))
    attention: Attention = formulation(rows, index, cache)
    output = attention(0, queries, keys, values)
    assert torch.equal(cache.keys[0][index.slots, :, index.positions], keys)
    assert torch.equal(cache.values[0][index.slots, :, index.positions], values)
    expected = reference(rows, cache, queries, torch.device("cpu"))
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


def test_packed_index() -> None:
    index = PackedIndex(PackedRows((4, 0, 2), (7, 0, 63), (2, 3, 1)), torch.device("cpu"))
    assert index.slots.tolist() == [4, 4, 0, 0, 0, 2]
    assert index.positions.tolist() == [7, 8, 0, 1, 2, 63]
