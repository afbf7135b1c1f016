"""Losslessness as statistics: texts decoded with bad drafts follow the target's exact law.

The wrong rules at the end are why a pass means something: each is a plausible mistake, and the
same test with the same sample size must reject it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dcoco_core.sampling.draw import gumbel_argmax
from dcoco_core.sampling.filters import target_scores
from dcoco_core.sampling.noise import Stream
from dcoco_core.types import Rule, SamplingParams
from dcoco_core.verification.decide import DraftColumns, RowBatch, decide_rejection
from dcoco_core.verification.rejection import Proposal, RejectionKeys, rejection_tokens
from dcoco_core.verification.walk import walk
from tests.simulation import (
    FILTERED,
    PLAIN_T1,
    Case,
    Outcome,
    exact_law,
    goodness_of_fit,
    simulate,
)

NUM_SAMPLES = 20_000
SETTINGS = pytest.mark.parametrize("sampling", [PLAIN_T1, FILTERED], ids=["t1", "filtered"])
TOP_P_ONLY = SamplingParams(temperature=1.0, top_p=0.8)


def p_value(case: Case, first_key: int = 0) -> float:
    return goodness_of_fit(simulate(case, NUM_SAMPLES, first_key=first_key), case.sampling)


@SETTINGS
@pytest.mark.parametrize("drafter", ["bad", "ar"])
@pytest.mark.parametrize("is_draft_sampled", [True, False], ids=["sampled", "argmax"])
def test_rejection_is_lossless(
    sampling: SamplingParams, drafter: str, is_draft_sampled: bool
) -> None:
    case = Case(sampling, Rule.REJECTION, drafter, 2, is_draft_sampled)
    assert p_value(case, first_key=1_000_000) > 1e-3


@SETTINGS
def test_coupled_is_lossless(sampling: SamplingParams) -> None:
    # Other drafters and lengths give the same texts, token for token: test_coupled.py.
    assert p_value(Case(sampling, Rule.COUPLED, "bad", 2)) > 1e-3


@pytest.mark.parametrize("rule", [Rule.REJECTION, Rule.COUPLED])
@pytest.mark.parametrize("length", [1, 3])
def test_other_block_lengths_and_top_p_alone(rule: Rule, length: int) -> None:
    assert p_value(Case(TOP_P_ONLY, rule, "par", length)) > 1e-3


def test_the_exact_law_is_a_distribution() -> None:
    for sampling in (PLAIN_T1, FILTERED):
        assert exact_law(sampling).sum() == pytest.approx(1.0)


def test_a_text_that_cannot_occur_is_found() -> None:
    law = torch.from_numpy(exact_law(FILTERED))
    impossible = (law == 0.0).nonzero()[:1]
    texts = torch.cat([simulate(Case(FILTERED, Rule.COUPLED), 2000), impossible])
    assert goodness_of_fit(texts, FILTERED) == 0.0


def residual_is_the_target(
    logits: torch.Tensor, batch: RowBatch, columns: DraftColumns, keys: dict[Stream, torch.Tensor]
) -> Outcome:
    """Wrong: after a rejection draws from the target, not from what the draft left over."""
    right = RejectionKeys(keys[Stream.ACCEPT], keys[Stream.RESIDUAL])

    def next_tokens(logits: torch.Tensor, alive: torch.Tensor, place: int) -> torch.Tensor:
        target = target_scores(logits, batch.filters.rows(alive))
        positions = batch.starts[alive] + 1 + place
        draft_ids = batch.draft_ids[alive, place]
        proposal = Proposal(
            draft_ids, columns.candidate_ids[alive, place], columns.draft_probs[alive, place]
        )
        tokens = rejection_tokens(target, proposal, right.rows(alive), positions)
        from_target = gumbel_argmax(target, keys[Stream.RESIDUAL][alive], positions)
        return torch.where(tokens == draft_ids, tokens, from_target)

    return walk(logits, batch.first_logits, batch.draft_ids, next_tokens)


def residual_noise_is_the_drafts(
    logits: torch.Tensor, batch: RowBatch, columns: DraftColumns, keys: dict[Stream, torch.Tensor]
) -> Outcome:
    """Wrong: the residual is drawn with the noise that made the draft."""
    wrong = RejectionKeys(keys[Stream.ACCEPT], keys[Stream.DRAFT])
    return decide_rejection(logits, batch, columns, wrong)


RIGHT = Case(PLAIN_T1, Rule.REJECTION)
WRONG = {
    "residual replaced by the target": replace(RIGHT, decide_rejection=residual_is_the_target),
    "argmax draft judged as a sampled one": replace(RIGHT, is_draft_sampled=False, claims="soft"),
    "ratio with the uncut draft distribution": replace(RIGHT, claims="uncut"),
    "residual drawn with the draft's noise": replace(
        RIGHT, decide_rejection=residual_noise_is_the_drafts
    ),
}


@SETTINGS
@pytest.mark.parametrize("mistake", WRONG)
def test_the_same_test_rejects_a_wrong_rule(mistake: str, sampling: SamplingParams) -> None:
    assert p_value(replace(WRONG[mistake], sampling=sampling)) < 1e-6
