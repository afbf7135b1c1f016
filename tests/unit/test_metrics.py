"""Counters from committed tokens, rates from counters."""

from __future__ import annotations

import json

import pytest

from dcoco_core.metrics import SpeculationRecord
from dcoco_core.types import Limits, Verdict
from dcoco_core.verification.commit import commit
from dcoco_core.verification.decision import Decision


def verdict(num_drafted: int | None, num_accepted: int, num_tokens: int | None = None) -> Verdict:
    size = num_accepted + 1 if num_tokens is None else num_tokens
    return Verdict("r", 0, 0, tuple(range(size)), num_drafted, num_accepted)


def record_of(*verdicts: Verdict) -> SpeculationRecord:
    record = SpeculationRecord()
    for each in verdicts:
        record.add(each)
    return record


def test_before_any_draft_there_are_no_rates() -> None:
    for record in (SpeculationRecord(), record_of(verdict(None, 0), verdict(None, 0))):
        assert record.summary() is None
        assert record.acceptance_rate is None
        assert record.mean_acceptance_length is None
        assert record.num_rounds == record.num_committed == record.num_drafted == 0
        assert record.acceptance_rate_per_position == []


def test_vllms_keys() -> None:
    record = record_of(verdict(None, 0), verdict(3, 3), verdict(3, 1), verdict(2, 0), verdict(3, 1))
    assert record.summary() == {
        "mean_acceptance_length": 9 / 4,
        "draft_acceptance_rate": 5 / 11,
        "acceptance_histogram": [1, 2, 0, 1],
        "num_spec_steps": 4,
        "num_accepted_draft_tokens": 5,
        "num_draft_tokens": 11,
        "num_spec_tokens": 3,
    }
    assert record.drafted_per_position == [4, 4, 3]
    assert record.accepted_per_position == [3, 1, 1]
    assert record.acceptance_rate_per_position == [3 / 4, 1 / 4, 1 / 3]
    json.dumps(record.summary(), allow_nan=False)


def test_tokens_after_an_eos_count_nowhere() -> None:
    committed = commit((1, 2, 9, 3, 4), Decision(5, 6), 0, Limits(50, frozenset({9})))
    record = record_of(verdict(5, committed.num_accepted, len(committed.token_ids)))
    assert (record.num_committed, record.num_accepted) == (3, 3)
    assert record.mean_acceptance_length == 3.0


def test_the_sum_over_requests_is_the_merged_record() -> None:
    first, second = [verdict(2, 2), verdict(4, 1)], [verdict(7, 5), verdict(1, 0)]
    merged = record_of(*first)
    merged.merge(record_of(*second))
    assert merged == record_of(*first, *second)
    merged.merge(SpeculationRecord())
    assert merged == record_of(*first, *second)


@pytest.mark.parametrize("num_accepted", range(5))
def test_accepted_never_exceeds_committed_or_drafted(num_accepted: int) -> None:
    record = record_of(verdict(4, num_accepted))
    assert record.num_accepted <= record.num_committed
    assert record.num_accepted <= record.num_drafted
