"""Drawing by Gumbel argmax: the right law, and the lazy form equal to the full one."""

from __future__ import annotations

import pytest
import scipy.stats
import torch

from dcoco_core.sampling.draw import contenders, gumbel_argmax
from dcoco_core.sampling.filters import TargetScores
from dcoco_core.sampling.noise import gumbel


def full_argmax(values: torch.Tensor, keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    ids = torch.arange(values.shape[1])
    return (values + gumbel(keys[:, None], positions[:, None], ids)).argmax(-1)


@pytest.mark.parametrize("temperature", [0.05, 0.7, 1.0, 3.0, 1e6])
def test_lazy_equals_full(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn((24, 49_152), generator=generator) * 3).double()
    values = (logits - logits.amax(-1, keepdim=True)) / temperature
    values[0] = 0.0  # everything is near
    values[1, 1:] = -torch.inf  # nothing else is
    values[2] -= 50.0  # a residual need not have its largest score at 0
    keys, positions = torch.arange(24) * 77, torch.arange(24) + 500
    drawn = gumbel_argmax(TargetScores(values, None), keys, positions)
    assert torch.equal(drawn, full_argmax(values, keys, positions))


def test_lazy_finds_winners_far_below_the_top() -> None:
    # One likely token against 49,151 others that hold most of the mass, 9 nats below it.
    values = torch.full((100, 49_152), -9.0, dtype=torch.float64)
    values[:, 7] = 0.0
    keys, positions = torch.arange(100), torch.zeros(100, dtype=torch.int64)
    drawn = gumbel_argmax(TargetScores(values, None), keys, positions)
    halves = zip(values.split(50), keys.split(50), positions.split(50), strict=True)
    assert torch.equal(drawn, torch.cat([full_argmax(*half) for half in halves]))
    assert (drawn != 7).sum() > 60


def test_lazy_looks_at_few_ids() -> None:
    values = torch.randn((8, 49_152), generator=torch.Generator().manual_seed(1)).double() * 4
    values -= values.amax(-1, keepdim=True)
    keys = torch.arange(8)
    assert contenders(values, keys, keys).values.shape[1] < 4000


def test_draws_follow_the_scores() -> None:
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=torch.float64)
    num_draws = 20_000
    scores = TargetScores(probs.log().expand(num_draws, -1), None)
    tokens = gumbel_argmax(scores, torch.arange(num_draws), torch.full((num_draws,), 3))
    counts = torch.bincount(tokens, minlength=5)
    assert counts[4] == 0
    assert scipy.stats.chisquare(counts[:4], probs[:4] * num_draws).pvalue > 1e-3


def test_ids_name_the_columns() -> None:
    values = torch.tensor([[0.0, -0.5, -1.0, -torch.inf]], dtype=torch.float64)
    ids = torch.tensor([[30, 10, 20, 0]])
    dense = torch.full((1, 64), -torch.inf, dtype=torch.float64).scatter(-1, ids, values)
    for key in range(50):
        keys, positions = torch.tensor([key]), torch.tensor([4])
        sparse = gumbel_argmax(TargetScores(values, ids), keys, positions)
        assert torch.equal(sparse, full_argmax(dense, keys, positions))
