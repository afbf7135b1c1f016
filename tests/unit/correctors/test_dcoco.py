"""DCOCO at inference: both scoring paths, mixed rules in one batch, and what a draft claims."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dcoco_core.correctors.dcoco.corrector import prefers_all_pairs
from dcoco_core.types import ContextGap, SamplingParams
from tests.unit.correctors.lattices import (
    COUPLED,
    GREEDY,
    NUM_CANDIDATES,
    REJECTION,
    candidates_of,
    corrector,
    probs_of,
    random_lattice,
    random_scorer,
    rows_of,
)

MIXED = [GREEDY, REJECTION, COUPLED, GREEDY, REJECTION]


def test_both_paths_give_the_same_draft():
    scorer = random_scorer()
    for seed in range(20):
        lattice = random_lattice(MIXED, seed=seed)
        lazy = corrector(scorer, all_pairs=False).correct(lattice)
        batched = corrector(scorer, all_pairs=True).correct(lattice)
        assert torch.equal(lazy.token_ids, batched.token_ids)
        torch.testing.assert_close(probs_of(lazy), probs_of(batched), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("all_pairs", [True, False])
def test_one_position_blocks(all_pairs):
    draft = corrector(random_scorer(), all_pairs=all_pairs).correct(random_lattice(MIXED, 1))
    assert draft.token_ids.shape == (5, 1)


def test_the_path_depends_on_the_device_alone():
    assert not prefers_all_pairs(torch.device("cpu"))
    assert prefers_all_pairs(torch.device("cuda"))


def test_the_corrector_changes_the_draft():
    """Otherwise every other test here could pass on a corrector that does nothing."""
    lattice = random_lattice([GREEDY] * 8)
    draft = corrector(random_scorer()).correct(lattice)
    assert not torch.equal(draft.token_ids, lattice.candidate_ids[..., 0])


def test_later_choices_follow_the_chosen_predecessor():
    """With the first position's candidates in another order the same tokens are chosen."""
    lattice = random_lattice([GREEDY] * 8)
    order = torch.arange(NUM_CANDIDATES - 1, -1, -1)
    shuffled = replace(
        lattice,
        candidate_ids=lattice.candidate_ids[..., order],
        candidate_logits=lattice.candidate_logits[..., order],
    )
    expected = corrector(random_scorer()).correct(lattice).token_ids
    assert torch.equal(corrector(random_scorer()).correct(shuffled).token_ids, expected)


@pytest.mark.parametrize("all_pairs", [True, False])
def test_ties_go_to_the_lowest_rank(all_pairs):
    lattice = random_lattice([GREEDY] * 3)
    same = lattice.candidate_ids[..., :1].expand_as(lattice.candidate_ids)
    tied = replace(
        lattice,
        candidate_ids=same.contiguous(),
        candidate_logits=torch.zeros_like(lattice.candidate_logits),
    )
    sampled = replace(tied, headers=tuple(replace(h, sampling=REJECTION) for h in tied.headers))
    pairs = corrector(random_scorer(), all_pairs=all_pairs)
    one_hot = replace(
        tied, headers=(*tied.headers[:2], replace(tied.headers[2], sampling=REJECTION))
    )
    ranks = probs_of(pairs.correct(one_hot)).argmax(-1)
    assert ranks[:2].eq(0).all()
    torch.testing.assert_close(
        probs_of(pairs.correct(sampled)), torch.full((3, 6, NUM_CANDIDATES), 1 / NUM_CANDIDATES)
    )


@pytest.mark.parametrize("all_pairs", [True, False])
def test_a_row_does_not_depend_on_its_batch_mates(all_pairs):
    pairs = corrector(random_scorer(), all_pairs=all_pairs)
    lattice = random_lattice(MIXED)
    together = pairs.correct(lattice)
    for row in range(len(MIXED)):
        alone = pairs.correct(rows_of(lattice, slice(row, row + 1)))
        assert torch.equal(alone.token_ids[0], together.token_ids[row])
        if alone.draft_probs is not None:
            torch.testing.assert_close(probs_of(alone)[0], probs_of(together)[row])


def test_padding_changes_nothing_before_it():
    lattice = random_lattice(MIXED)
    garbage = replace(
        lattice,
        candidate_ids=lattice.candidate_ids.clone(),
        candidate_logits=lattice.candidate_logits.clone(),
        hidden=lattice.hidden.clone(),
    )
    garbage.candidate_ids[:, 4:] = 0
    garbage.candidate_logits[:, 4:] = float("-inf")
    garbage.hidden[:, 4:] = float("nan")
    expected = corrector(random_scorer()).correct(lattice)
    draft = corrector(random_scorer()).correct(garbage)
    assert torch.equal(draft.token_ids[:, :4], expected.token_ids[:, :4])
    assert torch.equal(probs_of(draft)[:, :4], probs_of(expected)[:, :4])


def test_draft_probs_belong_to_the_rule_of_the_row():
    draft = corrector(random_scorer()).correct(random_lattice(MIXED))
    probs, candidates = probs_of(draft), candidates_of(draft)
    torch.testing.assert_close(probs.sum(-1), torch.ones(5, 6))
    chosen = candidates.eq(draft.token_ids[..., None])
    for row, sampling in enumerate(MIXED):
        if sampling is REJECTION:
            assert probs[row].max() < 1
            assert (probs[row][chosen[row]] > 0).all()
        else:
            assert torch.equal(probs[row], chosen[row].float())


def test_no_probs_without_a_sampled_row():
    draft = corrector(random_scorer()).correct(random_lattice([GREEDY, COUPLED]))
    assert draft.draft_probs is None
    assert torch.equal(candidates_of(draft), random_lattice([GREEDY, COUPLED]).candidate_ids)


def test_sampled_tokens_occur_as_often_as_draft_probs_say():
    """Second position, given the token drawn at the first; chi-square over many noise keys.

    Deterministic: the keys are fixed.
    """
    num_rows = 4000
    scorer = random_scorer()
    one = random_lattice([REJECTION], num_positions=2)
    lattice = replace(
        one,
        headers=tuple(
            replace(one.headers[0], sampling=SamplingParams(temperature=4.0, noise_key=1000 + key))
            for key in range(num_rows)
        ),
        candidate_ids=one.candidate_ids.expand(num_rows, -1, -1),
        candidate_logits=one.candidate_logits.expand(num_rows, -1, -1),
        log_normalizer=one.log_normalizer.expand(num_rows, -1),
        hidden=one.hidden.expand(num_rows, -1, -1),
        last_context=one.last_context.expand(num_rows, -1),
    )
    draft = corrector(scorer).correct(lattice)
    drawn = candidates_of(draft).eq(draft.token_ids[..., None]).double()
    ranks = drawn.argmax(-1)
    statistic, freedom = 0.0, 0
    for first in range(NUM_CANDIDATES):
        rows = ranks[:, 0] == first
        expected = probs_of(draft)[rows, 1].double().sum(0)
        counts = drawn[rows, 1].sum(0)
        assert (expected >= 8).all()
        statistic += float(((counts - expected).square() / expected).sum())
        freedom += NUM_CANDIDATES - 1
    expected = probs_of(draft)[:, 0].double().sum(0)
    statistic += float(((drawn[:, 0].sum(0) - expected).square() / expected).sum())
    freedom += NUM_CANDIDATES - 1
    assert freedom == 24
    assert statistic < 62.0  # chi-square, 24 degrees: p = 3e-5


def test_coupled_rows_take_the_same_noise_whatever_the_scorer():
    """Two different scorers agree far more often than chance when the row is coupled."""
    lattice = random_lattice([replace(COUPLED, temperature=20.0)] * 64)
    first = corrector(random_scorer(seed=8)).correct(lattice).token_ids
    second = corrector(random_scorer(seed=9)).correct(lattice).token_ids
    assert (first == second).float().mean() > 0.5


def test_fewer_and_more_candidates_than_the_checkpoint_has():
    lattice = random_lattice(MIXED)
    few = replace(
        lattice,
        candidate_ids=lattice.candidate_ids[..., :2],
        candidate_logits=lattice.candidate_logits[..., :2],
    )
    assert probs_of(corrector(random_scorer()).correct(few)).shape == (5, 6, 2)
    many = replace(
        lattice,
        candidate_ids=torch.cat([lattice.candidate_ids, lattice.candidate_ids], -1),
        candidate_logits=torch.cat([lattice.candidate_logits, lattice.candidate_logits - 99], -1),
    )
    expected = corrector(random_scorer()).correct(lattice)
    draft = corrector(random_scorer()).correct(many)
    assert torch.equal(draft.token_ids, expected.token_ids)
    assert candidates_of(draft).shape[2] == NUM_CANDIDATES


def test_rows_without_positions_and_gaps_pass_through():
    gap = ContextGap("lost", 2, 17)
    lattice = replace(random_lattice([GREEDY] * 2, num_positions=0), gaps=(gap,))
    draft = corrector(random_scorer()).correct(lattice)
    assert draft.token_ids.shape == (2, 0)
    assert draft.gaps == (gap,)
    assert draft.headers == lattice.headers


def test_half_precision_states_are_taken():
    lattice = random_lattice(MIXED)
    half = replace(
        lattice, hidden=lattice.hidden.bfloat16(), last_context=lattice.last_context.bfloat16()
    )
    draft = corrector(random_scorer()).correct(half)
    assert probs_of(draft).dtype == torch.float32
