"""Where a request ends, over every small case."""

from __future__ import annotations

from itertools import product

import pytest

from dcoco_core.types import FinishReason, Limits, Verdict
from dcoco_core.verification.commit import Committed, commit, cut_verdict
from dcoco_core.verification.decision import Decision

STOP = 9


def test_every_small_case_against_its_definition() -> None:
    num_cases = 0
    for length, generated, cap in product(range(5), range(4), range(1, 8)):
        if generated >= cap:
            continue
        for draft_ids in product((1, STOP), repeat=length):
            for accepted, next_id in product(range(length + 1), (2, STOP)):
                committed = commit(
                    draft_ids,
                    Decision(accepted, next_id),
                    generated,
                    Limits(cap, frozenset({STOP})),
                )
                check(committed, [*draft_ids[:accepted], next_id], accepted, cap - generated)
                num_cases += 1
    assert num_cases > 2000


def check(committed: Committed, decided: list[int], accepted: int, num_left: int) -> None:
    tokens = list(committed.token_ids)
    assert tokens
    assert tokens == decided[: len(tokens)]
    assert len(tokens) <= num_left
    assert STOP not in tokens[:-1]
    has_stopped, is_full = tokens[-1] == STOP, len(tokens) == num_left
    expected = FinishReason.STOP if has_stopped else FinishReason.LENGTH if is_full else None
    assert committed.finish_reason is expected
    # Nothing is held back without a reason.
    assert len(tokens) == len(decided) or expected is not None
    assert committed.num_accepted == min(accepted, len(tokens))


def test_an_eos_inside_the_accepted_prefix_drops_the_rest_and_the_bonus() -> None:
    committed = commit((1, 2, STOP, 3, 4), Decision(5, 6), 0, Limits(100, frozenset({STOP})))
    assert committed == Committed((1, 2, STOP), 3, FinishReason.STOP)


def test_the_stop_comes_before_the_cap() -> None:
    limits = Limits(5, frozenset({STOP}))
    committed = commit((1, 2, STOP, 3, 4, 5), Decision(6, 6), 0, limits)
    assert committed == Committed((1, 2, STOP), 3, FinishReason.STOP)


def test_the_cap_comes_before_the_stop() -> None:
    limits = Limits(5, frozenset({STOP}))
    committed = commit((1, 2, 3, 4, 5, STOP), Decision(6, 6), 0, limits)
    assert committed == Committed((1, 2, 3, 4, 5), 5, FinishReason.LENGTH)


def test_a_stop_on_the_last_token_allowed_is_a_stop() -> None:
    committed = commit((1,), Decision(1, STOP), 3, Limits(5, frozenset({STOP})))
    assert committed == Committed((1, STOP), 1, FinishReason.STOP)


def test_one_token_allowed() -> None:
    assert commit((1, 2), Decision(2, 3), 0, Limits(1)) == Committed((1,), 1, FinishReason.LENGTH)
    assert commit((), Decision(0, 3), 0, Limits(1)) == Committed((3,), 0, FinishReason.LENGTH)


def test_a_request_that_has_ended_is_refused() -> None:
    with pytest.raises(ValueError, match="4 of 4 tokens"):
        commit((), Decision(0, 1), 4, Limits(4))


def test_a_stop_string_cuts_ids_and_statistics_at_one_token() -> None:
    verdict = Verdict("r", 0, 10, (1, 2, 3, 4), num_drafted=5, num_accepted=3)
    cut = cut_verdict(verdict, 2)
    assert (cut.token_ids, cut.num_accepted, cut.finish_reason) == ((1, 2), 2, FinishReason.STOP)
    assert cut_verdict(verdict, 4).num_accepted == 3
    for num_kept in (0, 5):
        with pytest.raises(ValueError, match="num_kept"):
            cut_verdict(verdict, num_kept)
