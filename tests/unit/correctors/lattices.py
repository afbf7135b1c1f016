"""Random lattices and scorers small enough to check by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from dcoco_core.correctors.dcoco.checkpoint import project_tokens
from dcoco_core.correctors.dcoco.corrector import DCOCOCorrector
from dcoco_core.correctors.dcoco.scorer import PairScorer, ScorerConfig
from dcoco_core.types import Draft, Lattice, RowHeader, SamplingParams

HIDDEN, VOCAB, NUM_CANDIDATES = 12, 60, 5
GREEDY = SamplingParams()
REJECTION = SamplingParams(temperature=0.7, noise_key=11)
COUPLED = SamplingParams(temperature=0.7, seed=5, noise_key=5)


def header(row: int, sampling: SamplingParams = GREEDY, num_draft_tokens: int = 6) -> RowHeader:
    return RowHeader(
        request_id=f"r{row}",
        generation=0,
        start=40 + row,
        anchor_id=(7 * row + 3) % VOCAB,
        num_draft_tokens=num_draft_tokens,
        sampling=sampling,
        corrector="dcoco",
        context_start=0,
        num_context_rows=0,
    )


def random_lattice(
    samplings: Sequence[SamplingParams], num_positions: int = 6, seed: int = 0
) -> Lattice:
    generator = torch.Generator().manual_seed(seed)
    num_rows = len(samplings)
    logits = torch.randn(num_rows, num_positions, VOCAB, generator=generator)
    top = logits.topk(NUM_CANDIDATES)
    return Lattice(
        headers=tuple(header(row, s, num_positions) for row, s in enumerate(samplings)),
        candidate_ids=top.indices,
        candidate_logits=top.values,
        log_normalizer=logits.logsumexp(-1),
        hidden=torch.randn(num_rows, num_positions, HIDDEN, generator=generator),
        last_context=torch.randn(num_rows, HIDDEN, generator=generator),
    )


def rows_of(lattice: Lattice, rows: slice) -> Lattice:
    return replace(
        lattice,
        headers=lattice.headers[rows],
        candidate_ids=lattice.candidate_ids[rows],
        candidate_logits=lattice.candidate_logits[rows],
        log_normalizer=lattice.log_normalizer[rows],
        hidden=lattice.hidden[rows],
        last_context=lattice.last_context[rows],
    )


def random_embedding(seed: int = 1) -> torch.Tensor:
    return 0.05 * torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(seed))


def random_scorer(seed: int = 2, *, add_base_logit: bool = True) -> PairScorer:
    """A scorer whose MLP matters: trained ones start from a zero output layer."""
    config = ScorerConfig(
        HIDDEN,
        num_candidates=NUM_CANDIDATES,
        candidate_size=8,
        pair_size=7,
        mlp_size=10,
        add_base_logit=add_base_logit,
    )
    generator = torch.Generator().manual_seed(seed)
    scorer = PairScorer(config).eval()
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return scorer


def corrector(scorer: PairScorer, *, all_pairs: bool | None = None) -> DCOCOCorrector:
    return DCOCOCorrector(scorer, project_tokens(scorer, random_embedding()), all_pairs)


def probs_of(draft: Draft) -> torch.Tensor:
    assert draft.draft_probs is not None
    return draft.draft_probs


def candidates_of(draft: Draft) -> torch.Tensor:
    assert draft.candidate_ids is not None
    return draft.candidate_ids
