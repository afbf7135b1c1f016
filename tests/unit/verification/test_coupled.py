"""Coupled decisions: the text is a function of the seed and the target alone."""

from __future__ import annotations

import pytest
import torch

from dcoco_core.types import Rule, SamplingParams
from tests.simulation import FILTERED, PLAIN_T1, Case, simulate
from tests.toys import DRAFTERS

NUM_TEXTS, NUM_TOKENS = 1000, 8
SETTINGS = pytest.mark.parametrize("sampling", [PLAIN_T1, FILTERED], ids=["t1", "filtered"])


def texts(case: Case, first_key: int = 0) -> torch.Tensor:
    return simulate(case, NUM_TEXTS, NUM_TOKENS, first_key)


@SETTINGS
def test_same_text_for_every_drafter_and_block_length_and_plain(sampling: SamplingParams) -> None:
    plain = texts(Case(sampling, Rule.COUPLED, num_draft_tokens=0))
    for drafter in DRAFTERS:
        for length, is_draft_sampled in ((1, True), (3, False), (8, True)):
            case = Case(sampling, Rule.COUPLED, drafter, length, is_draft_sampled)
            assert torch.equal(texts(case), plain), case


@SETTINGS
def test_the_seed_changes_the_text(sampling: SamplingParams) -> None:
    case = Case(sampling, Rule.COUPLED, num_draft_tokens=2)
    one, other = texts(case), texts(case, first_key=NUM_TEXTS)
    assert torch.equal(one, texts(case))
    assert (one == other).all(-1).float().mean() < 0.02
    assert len(one[:, 0].unique()) > 3


def test_the_shared_noise_makes_a_draft_agree_more_often() -> None:
    sampled = mean_accepted(Case(PLAIN_T1, Rule.COUPLED, "ar", 1))
    argmax = mean_accepted(Case(PLAIN_T1, Rule.COUPLED, "ar", 1, is_draft_sampled=False))
    assert sampled > argmax + 0.05


def mean_accepted(case: Case) -> float:
    """Draft tokens accepted in the first round, on average."""
    accepted: list[torch.Tensor] = []
    simulate(case, NUM_TEXTS, 1, on_round=lambda num_accepted: accepted.append(num_accepted))
    return float(torch.cat(accepted).double().mean())
