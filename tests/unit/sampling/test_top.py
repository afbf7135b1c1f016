"""The k largest in one fixed order."""

from __future__ import annotations

import pytest
import torch

from dcoco_core.sampling.top import top_candidates


def by_sorting(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, ids = logits.sort(dim=-1, descending=True, stable=True)
    return values[:, :k], ids[:, :k]


@pytest.mark.parametrize("k", [1, 2, 7, 63, 64])
@pytest.mark.parametrize("num_levels", [1, 2, 5, 40, 10**9])
def test_equals_a_stable_sort_whatever_the_ties(k: int, num_levels: int) -> None:
    generator = torch.Generator().manual_seed(k)
    logits = torch.randint(num_levels, (200, 64), generator=generator).float()
    values, ids = top_candidates(logits, k)
    expected_values, expected_ids = by_sorting(logits, k)
    assert torch.equal(ids, expected_ids)
    assert torch.equal(values, expected_values)


def test_bf16_logits_of_a_large_vocabulary() -> None:
    logits = torch.randn((8, 49_152), generator=torch.Generator().manual_seed(1)) * 3
    logits = logits.bfloat16().float()
    ranked = logits.sort(-1, descending=True).values
    assert (ranked[:, 49] == ranked[:, 50]).any(), "no tie at the cut: the test shows nothing"
    assert torch.equal(top_candidates(logits, 50)[1], by_sorting(logits, 50)[1])


def test_forbidden_ids_come_last() -> None:
    logits = torch.full((1, 6), -torch.inf)
    logits[0, 4] = 1.0
    values, ids = top_candidates(logits, 3)
    assert ids.tolist() == [[4, 0, 1]]
    assert values[0, 1:].tolist() == [-torch.inf, -torch.inf]
