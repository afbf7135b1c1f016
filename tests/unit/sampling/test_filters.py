"""Temperature, top-k, top-p against the obvious computation, ties and extremes included."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dcoco_core.sampling import filters as filters_module
from dcoco_core.sampling.filters import FilterKind, Filters, filter_kind, target_scores
from dcoco_core.types import SamplingParams
from tests.simulation import filtered_probs

CPU = torch.device("cpu")


def probs_of(logits: torch.Tensor, *rows: SamplingParams) -> torch.Tensor:
    """Dense target_probs [R, V]."""
    kind = filter_kind(rows[0], logits.shape[1])
    scores = target_scores(logits, Filters.of(rows, kind, CPU))
    probs = scores.values.exp() / scores.mass()[:, None]
    if scores.ids is None:
        return probs
    return torch.zeros(logits.shape, dtype=torch.float64).scatter_add_(-1, scores.ids, probs)


SETTINGS = [
    SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    for temperature in (0.3, 1.0, 1.7)
    for top_k in (0, 1, 5, 50, 10**6)
    for top_p in (1.0, 0.9, 0.35)
]


@pytest.mark.parametrize("vocab_size", [64, 5000])
@pytest.mark.parametrize("is_rounded", [False, True])
def test_equals_the_obvious_computation(vocab_size: int, is_rounded: bool) -> None:
    logits = torch.randn((12, vocab_size), generator=torch.Generator().manual_seed(0)) * 3
    if is_rounded:  # many ties
        logits = (logits * 2).round() / 2
    for sampling in SETTINGS:
        ours = probs_of(logits, *[sampling] * 12)
        expected = filtered_probs(logits.numpy(), sampling)
        assert np.array_equal(ours.numpy() > 0.0, expected > 0.0), sampling
        np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-9, atol=1e-15)


def test_rows_keep_their_own_parameters() -> None:
    logits = torch.randn((3, 64), generator=torch.Generator().manual_seed(2))
    rows = [
        SamplingParams(temperature=0.5, top_k=3),
        SamplingParams(temperature=2.0, top_k=40, top_p=0.5),
        SamplingParams(temperature=1.0, top_k=10, top_p=0.99),
    ]
    together = probs_of(logits, *rows)
    for index, row in enumerate(rows):
        assert torch.equal(together[index], probs_of(logits[index : index + 1], row)[0])
    assert (together > 0.0).sum(-1)[0] == 3


def test_top_p_acts_on_what_top_k_left() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    sampling = SamplingParams(temperature=1.0, top_k=2, top_p=0.5)
    # .4 of .7 is more than half, so one id is enough; of all four it would take two.
    assert probs_of(logits, sampling).tolist() == [[1.0, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize("top_k", [0, 2])
def test_ties_go_to_the_lowest_id(top_k: int) -> None:
    logits = torch.zeros((1, 8))
    probs = probs_of(logits, SamplingParams(temperature=1.0, top_k=top_k, top_p=0.25))
    assert (probs > 0.0).nonzero()[:, 1].tolist() == ([0] if top_k else [0, 1])


@pytest.mark.parametrize("vocab_size", [64, 5000])
@pytest.mark.parametrize("top_k", [0, 5])
def test_a_tiny_top_p_keeps_the_likeliest_token(vocab_size: int, top_k: int) -> None:
    logits = torch.randn((4, vocab_size), generator=torch.Generator().manual_seed(3))
    probs = probs_of(logits, *[SamplingParams(temperature=1.0, top_k=top_k, top_p=1e-300)] * 4)
    assert torch.equal(probs.argmax(-1), logits.argmax(-1))
    assert (probs > 0.0).sum(-1).tolist() == [1] * 4


@pytest.mark.parametrize("temperature", [1e-308, 1e-30, 1e-3, 1e30])
@pytest.mark.parametrize("top_k", [0, 3])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_extreme_temperatures_stay_finite(temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.tensor([[1000.0, -3.0, 999.0, 0.5, -torch.inf]])
    sampling = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    probs = probs_of(logits, sampling)
    assert probs.isfinite().all()
    assert float(probs.sum()) == pytest.approx(1.0)
    assert probs[0, 4] == 0.0 or temperature == 1e30
    if temperature < 1e-2:
        assert probs[0, 0] == pytest.approx(1.0)


def test_thinning_out_before_sorting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(4)
    for scale in (0.0, 0.1, 1.0, 4.0, 30.0):
        logits = (torch.randn((3, 9000), generator=generator) * scale * 4).round() / 4
        rows = [SamplingParams(temperature=0.8, top_p=p) for p in (0.05, 0.9, 0.9999999)]
        monkeypatch.setattr(filters_module, "_SORT_WHOLE", 4096)
        thinned = probs_of(logits, *rows)
        monkeypatch.setattr(filters_module, "_SORT_WHOLE", 10**9)
        assert torch.equal(thinned > 0.0, probs_of(logits, *rows) > 0.0)


def test_a_filter_that_cannot_bind_is_no_filter() -> None:
    assert filter_kind(SamplingParams(temperature=1.0), 64) is FilterKind.UNFILTERED
    assert filter_kind(SamplingParams(temperature=1.0, top_k=64), 64) is FilterKind.UNFILTERED
    assert filter_kind(SamplingParams(temperature=1.0, top_k=63), 64) is FilterKind.TOP_K
    assert filter_kind(SamplingParams(temperature=1.0, top_p=0.99), 64) is FilterKind.TOP_P
