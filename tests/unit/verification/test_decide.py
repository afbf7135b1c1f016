"""Decisions on single rows and mixed batches."""

from __future__ import annotations

import pytest
import torch

from dcoco_core.types import SamplingParams
from dcoco_core.verification.decide import DraftedRow, decide
from dcoco_core.verification.decision import Decision

GREEDY = SamplingParams()
VOCAB = 64


def ids(*tokens: int) -> torch.Tensor:
    return torch.tensor(tokens, dtype=torch.int64)


def logits_of(*probs: list[float]) -> torch.Tensor:
    return torch.tensor(probs).log()


def peaked(*tokens: int) -> torch.Tensor:
    """One row of logits per token, whose argmax it is."""
    return torch.nn.functional.one_hot(ids(*tokens), VOCAB).float() * 5


class TestGreedy:
    def test_perfect_match_adds_the_bonus(self) -> None:
        row = DraftedRow(9, GREEDY, ids(1, 2, 3))
        assert decide(peaked(1, 2, 3, 4), [row]) == [Decision(3, 4)]

    def test_early_mismatch_recovers_the_targets_token(self) -> None:
        row = DraftedRow(9, GREEDY, ids(1, 7, 3))
        assert decide(peaked(1, 2, 3, 4), [row]) == [Decision(1, 2)]

    def test_an_agreement_after_a_mismatch_counts_for_nothing(self) -> None:
        row = DraftedRow(9, GREEDY, ids(7, 2, 3))
        assert decide(peaked(1, 2, 3, 4), [row]) == [Decision(0, 1)]

    def test_empty_draft_is_plain_decoding(self) -> None:
        assert decide(peaked(5), [DraftedRow(9, GREEDY, ids())]) == [Decision(0, 5)]

    def test_a_likely_draft_token_that_is_not_the_argmax_is_rejected(self) -> None:
        row = DraftedRow(9, GREEDY, ids(0), ids(0)[None], torch.ones(1, 1))
        assert decide(logits_of([0.3, 0.5, 0.2], [1.0, 0.0, 0.0]), [row]) == [Decision(0, 1)]

    def test_ties_go_to_the_lowest_id(self) -> None:
        assert decide(torch.zeros(1, VOCAB), [DraftedRow(9, GREEDY, ids())]) == [Decision(0, 0)]


class TestRejection:
    def test_equal_distributions_always_accept(self) -> None:
        probs = torch.tensor([0.5, 0.3, 0.2])
        for key in range(200):
            token = key % 3
            row = DraftedRow(
                4,
                SamplingParams(temperature=1.0, noise_key=key),
                ids(token),
                ids(0, 1, 2)[None],
                probs[None],
            )
            (decision,) = decide(probs.log().expand(2, -1), [row])
            assert decision.num_accepted == 1

    def test_an_impossible_draft_token_is_always_rejected(self) -> None:
        for key in range(200):
            sampling = SamplingParams(temperature=1.0, top_k=2, noise_key=key)
            (decision,) = decide(
                logits_of([0.5, 0.3, 0.2], [1.0, 0.0, 0.0]), [DraftedRow(4, sampling, ids(2))]
            )
            assert decision.num_accepted == 0
            assert decision.next_id in (0, 1)

    def test_a_certain_draft_token_is_always_accepted(self) -> None:
        for key in range(200):
            sampling = SamplingParams(temperature=1.0, top_k=1, noise_key=key)
            rows = [DraftedRow(4, sampling, ids(1))]
            (decision,) = decide(logits_of([0.3, 0.5, 0.2], [0.9, 0.05, 0.05]), rows)
            assert decision == Decision(1, 0)

    def test_nothing_left_in_the_residual_falls_back_to_the_target(self) -> None:
        # The draft claims more than the target has everywhere, as rounding could make it.
        probs = torch.tensor([0.5, 0.3, 0.2])
        rejected = 0
        for key in range(200):
            row = DraftedRow(
                4,
                SamplingParams(temperature=1.0, noise_key=key),
                ids(0),
                ids(0, 1, 2)[None],
                probs[None] * 2,
            )
            (decision,) = decide(probs.log().expand(2, -1), [row])
            rejected += decision.num_accepted == 0
            assert 0 <= decision.next_id < 3
        assert rejected > 20

    def test_a_repeated_candidate_is_one_candidate(self) -> None:
        target = logits_of([0.5, 0.3, 0.2], [1 / 3, 1 / 3, 1 / 3])
        for key in range(100):
            sampling = SamplingParams(temperature=1.0, noise_key=key)
            once = DraftedRow(
                4, sampling, ids(0), ids(0, 1, 1)[None], torch.tensor([[0.9, 0.1, 0.0]])
            )
            twice = DraftedRow(
                4, sampling, ids(0), ids(0, 0, 1)[None], torch.tensor([[0.5, 0.4, 0.1]])
            )
            assert decide(target, [once]) == decide(target, [twice])

    def test_unseeded_requests_are_independent_and_varied(self) -> None:
        logits = torch.randn((1, VOCAB), generator=torch.Generator().manual_seed(0))
        rows = [
            DraftedRow(7, SamplingParams(temperature=1.0, noise_key=key), ids())
            for key in range(300)
        ]
        tokens = [decision.next_id for decision in decide(logits.expand(300, -1), rows)]
        assert len(set(tokens)) > 20
        assert tokens[:150] != tokens[150:]


def mixed_rows() -> tuple[list[DraftedRow], list[torch.Tensor]]:
    """Every rule with every kind of filter and draft, 2 to 5 logits each."""
    generator = torch.Generator().manual_seed(5)
    kinds = [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 50, "top_p": 0.9},
        {"temperature": 0.7, "top_k": 8},
        {"temperature": 1.3, "top_p": 0.6},
        {"temperature": 1e-6},
    ]
    rows, logits = [], []
    for index in range(36):
        length = index % 5
        seed = index if index % 2 else None
        sampling = SamplingParams(**kinds[index % 6], seed=seed, noise_key=index)  # type: ignore[arg-type]
        target = torch.randn((length + 1, VOCAB), generator=generator) * 3
        draft_ids = target[:length].argmax(-1)
        candidates = probs = None
        if index % 3:
            probs, candidates = (
                target[:length].topk(2 + index % 4).values.softmax(-1),
                target[:length].topk(2 + index % 4).indices,
            )
        rows.append(DraftedRow(10 * index, sampling, draft_ids, candidates, probs))
        logits.append(target)
    return rows, logits


class TestBatches:
    def test_a_decision_does_not_depend_on_its_batch_mates(self) -> None:
        rows, logits = mixed_rows()
        together = decide(torch.cat(logits), rows)
        alone = [decide(target, [row])[0] for row, target in zip(rows, logits, strict=True)]
        assert together == alone
        backwards = decide(torch.cat(logits[::-1]), rows[::-1])
        assert backwards == alone[::-1]
        assert {decision.num_accepted for decision in alone} == {0, 1, 2, 3, 4}

    def test_the_same_for_a_large_vocabulary(self) -> None:
        generator = torch.Generator().manual_seed(6)
        logits = torch.randn((12, 49_152), generator=generator) * 3
        rows = []
        for index in range(6):
            sampling = SamplingParams(
                temperature=0.8,
                top_p=1.0 if index % 3 else 0.9,
                seed=None if index < 3 else index,
                noise_key=index,
            )
            draft_ids = logits[2 * index].argmax(-1, keepdim=True)
            rows.append(DraftedRow(index, sampling, draft_ids))
        alone = [decide(logits[2 * i : 2 * i + 2], [row])[0] for i, row in enumerate(rows)]
        assert decide(logits, rows) == alone

    def test_a_greedy_row_in_a_sampled_batch_is_greedy(self) -> None:
        rows, logits = mixed_rows()
        for row, target, decision in zip(
            rows, logits, decide(torch.cat(logits), rows), strict=True
        ):
            if row.sampling.temperature == 0.0:
                assert decision == Decision(len(row.draft_ids), int(target[-1].argmax()))

    def test_no_rows(self) -> None:
        assert decide(torch.empty(0, VOCAB), []) == []

    def test_logits_that_do_not_fit_are_refused(self) -> None:
        with pytest.raises(ValueError, match="3 rows of logits for 1 rows with 1 draft tokens"):
            decide(torch.zeros(3, VOCAB), [DraftedRow(0, GREEDY, ids(1))])

    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    @pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=1.0, top_k=5)])
    def test_broken_logits_are_refused(self, value: float, sampling: SamplingParams) -> None:
        logits = torch.zeros(3, VOCAB)
        logits[1, 40] = value
        with pytest.raises(ValueError, match=r"packed rows \[1\]"):
            decide(logits, [DraftedRow(0, sampling, ids(1, 2))])
