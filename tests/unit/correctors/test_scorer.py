"""The pair scorer against its published sizes and against a plain MLP over concatenated inputs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from dcoco_core.correctors.dcoco.scorer import PairScorer, ScorerConfig
from tests.unit.correctors.lattices import (
    GREEDY,
    HIDDEN,
    NUM_CANDIDATES,
    random_embedding,
    random_lattice,
    random_scorer,
)


@pytest.mark.parametrize(
    ("hidden_size", "num_parameters"), [(2560, 1_443_073), (4096, 2_229_505), (576, 427_265)]
)
def test_parameter_counts_are_the_published_ones(hidden_size, num_parameters):
    with torch.device("meta"):
        scorer = PairScorer(ScorerConfig(hidden_size))
    assert sum(p.numel() for p in scorer.parameters()) == num_parameters
    assert num_parameters == 512 * hidden_size + 132_353


def rms(x):
    return x / x.square().mean(-1, keepdim=True).sqrt()


def naive_score(scorer, embedding, lattice, row, position, previous, candidate):
    """The formula, one pair at a time, with nothing shared, factored or batched."""
    states = torch.cat([lattice.last_context[row, None], lattice.hidden[row]])
    log_probs = (lattice.candidate_logits - lattice.log_normalizer[..., None])[row]
    if position == 0:
        left_id, left_log_prob = lattice.headers[row].anchor_id, torch.tensor(0.0)
    else:
        left_id = lattice.candidate_ids[row, position - 1, previous]
        left_log_prob = log_probs[position - 1, previous]
    right_id = lattice.candidate_ids[row, position, candidate]
    right_log_prob = log_probs[position, candidate]
    left_state, right_state = rms(states[position]), rms(states[position + 1])
    left = scorer.candidate_proj(torch.cat([rms(embedding[left_id]), left_state]))
    right = scorer.candidate_proj(torch.cat([rms(embedding[right_id]), right_state]))
    pair = scorer.pair_proj(torch.cat([left_state, right_state]))
    gap = right_log_prob - log_probs[position].max()
    scalars = torch.stack([left_log_prob, right_log_prob, gap])
    inputs = torch.cat([left, right, left * right, pair, scalars])
    score = scorer.mlp_out(F.silu(scorer.mlp_in(inputs)))[0]
    return score + right_log_prob if scorer.config.add_base_logit else score


@pytest.mark.parametrize("add_base_logit", [True, False])
@torch.no_grad()
def test_factored_scores_equal_the_plain_mlp(add_base_logit):
    scorer = random_scorer(add_base_logit=add_base_logit)
    lattice, embedding = random_lattice([GREEDY] * 2, num_positions=3), random_embedding()
    features = scorer.features(
        anchor=scorer.token_states(embedding[torch.tensor([h.anchor_id for h in lattice.headers])]),
        candidates=scorer.token_states(embedding[lattice.candidate_ids]),
        log_probs=lattice.candidate_logits - lattice.log_normalizer[..., None],
        hidden=lattice.hidden,
        last_context=lattice.last_context,
    )
    num_compared = 0
    for position in range(3):
        if position == 0:
            previous, previous_log_probs = features.anchor[:, None], torch.zeros(2, 1)
        else:
            previous = features.candidates[:, position - 1]
            previous_log_probs = features.log_probs[:, position - 1]
        scores = scorer.pair_scores(
            previous,
            previous_log_probs,
            features.candidates[:, position],
            features.successor[:, position],
            features.log_probs[:, position],
        )
        for row in range(2):
            for left in range(previous.shape[1]):
                for right in range(NUM_CANDIDATES):
                    expected = naive_score(scorer, embedding, lattice, row, position, left, right)
                    assert scores[row, left, right].item() == pytest.approx(
                        expected.item(), abs=1e-4, rel=1e-4
                    )
                    num_compared += 1
    assert num_compared == 2 * (1 + 2 * NUM_CANDIDATES) * NUM_CANDIDATES


def test_an_untrained_scorer_returns_the_draft_as_it_is():
    scorer = PairScorer(ScorerConfig(HIDDEN))
    log_probs = torch.randn(1, 4)
    scores = scorer.pair_scores(
        torch.randn(1, 1, 128),
        torch.zeros(1, 1),
        torch.randn(1, 4, 128),
        torch.randn(1, 4, 256),
        log_probs,
    )
    assert torch.equal(scores[:, 0], log_probs)
