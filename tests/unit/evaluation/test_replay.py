"""A replayed answer says of every corrector what real decoding says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from dcoco_core.decode import collect, decode
from dcoco_core.errors import ConfigError
from dcoco_core.evaluation.replay import (
    NUM_ORACLE_CANDIDATES,
    ORACLE,
    Recorded,
    ReplayedAnswer,
    replay,
)
from dcoco_core.evaluation.stack import Stack
from dcoco_core.metrics import SpeculationRecord
from dcoco_core.types import Draft, Lattice, Limits, Request, SamplingParams, Speculation
from tests.unit.evaluation.tiny_stack import tiny_stack

LENGTH, NUM_ROWS = 5, 4


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    return tiny_stack(tmp_path_factory.mktemp("stack"))


def requests(stack: Stack, temperature: float) -> list[Request]:
    """More than rows fit at once; answers end by the cap, at a stop id, or at once."""
    plain = []
    for number in range(10):
        seed = number if temperature else None
        plain.append(
            Request(
                request_id=f"r{number}",
                prompt_ids=tuple(range(65 + number, 75 + 2 * number)),
                limits=Limits((1, 2, 17, 24)[number % 4]),
                sampling=SamplingParams(temperature, seed=seed, noise_key=number),
                speculation=Speculation(LENGTH, "any"),
            )
        )
    texts = collect(decode(plain, stack.verifier(NUM_ROWS, drafting=False)))
    stopped = replace(plain[3], limits=Limits(24, frozenset({texts["r3"][-5]})))
    return [*plain[:3], stopped, *plain[4:]]


def replayed(stack: Stack, wanted: list[Request]) -> list[ReplayedAnswer]:
    texts = collect(decode(wanted, stack.verifier(NUM_ROWS, drafting=False)))
    recorded = [Recorded(request, texts[request.request_id]) for request in wanted]
    drafter = stack.drafter(LENGTH, NUM_ROWS, NUM_ORACLE_CANDIDATES)
    found = replay(recorded, stack.target, stack.projection, drafter, stack.correctors, NUM_ROWS)
    return [answer for _, answer in sorted(found)]


def decoded(stack: Stack, wanted: list[Request], corrector: str) -> list[SpeculationRecord]:
    records = {request.request_id: SpeculationRecord() for request in wanted}
    stages = stack.verifier(NUM_ROWS), stack.drafter(LENGTH, NUM_ROWS), stack.correctors[corrector]
    for verdict in decode(wanted, *stages):
        records[verdict.request_id].add(verdict)
    return list(records.values())


@pytest.mark.parametrize("temperature", [0.0, 8.0])
def test_rounds_are_those_of_real_decoding(stack: Stack, temperature: float) -> None:
    wanted = requests(stack, temperature)
    answers = replayed(stack, wanted)
    assert [len(a.response_ids) for a in answers].count(1) >= 2
    for corrector in stack.correctors:
        expected = decoded(stack, wanted, corrector)
        assert [answer.speculate(corrector) for answer in answers] == expected
        total = SpeculationRecord()
        for record in expected:
            total.merge(record)
        # Something was accepted, something was not, and blocks got shorter before the cap.
        assert min(total.num_accepted, total.rounds_by_accepted[0]) > 0
        assert sum(total.rounds_by_drafted[1:LENGTH]) > 0
    if temperature:
        both = [[a.speculate(name) for a in answers] for name in stack.correctors]
        assert both[0] != both[1]


def test_the_oracle_is_never_worse_and_recall_is_counted(stack: Stack) -> None:
    answers = replayed(stack, requests(stack, 8.0))
    for answer in answers:
        for counts in (answer.num_accepted["none"], answer.num_accepted["dcoco"]):
            assert all(a <= b for a, b in zip(counts, answer.num_accepted[ORACLE], strict=True))
        first, last = answer.found_at_1, answer.found_at_16
        assert all(a <= b <= c for a, b, c in zip(first, last, answer.asked, strict=True))
        # Every anchor but those with one token left to generate has a block; its first place
        # always has a token after it.
        assert answer.asked[0] == sum(length > 0 for length in answer.num_drafted)


def test_fewer_verified_proposals_accept_no_more_than_that() -> None:
    answer = ReplayedAnswer((1, 2, 3, 4, 5, 6, 7), [4, 4, 4, 3, 2, 1], {"x": [3, 0, 2, 1, 2, 1]})
    # Anchor 0 accepts 3 and adds one: anchor 4 is next, which accepts the last 2 tokens.
    assert answer.speculate("x").rounds_by_accepted == [0, 0, 1, 1, 0]
    assert answer.speculate("x").num_committed == 6
    one = answer.speculate("x", 1)
    assert one.rounds_by_drafted == [0, 3]
    assert one.rounds_by_accepted == [0, 3]
    assert one.num_committed == 6


class _Knowing:
    """A corrector that knows the answer, and errs at one place of every block if it is told to."""

    num_candidates = 1

    def __init__(self, request: Request, text: tuple[int, ...], wrong: int | None = None) -> None:
        self._tokens, self._wrong = request.prompt_ids + text, wrong

    def correct(self, lattice: Lattice) -> Draft:
        token_ids = lattice.candidate_ids[..., 0].clone()
        for row, header in enumerate(lattice.headers):
            following = self._tokens[header.start + 1 : header.start + 1 + token_ids.shape[1]]
            token_ids[row, : len(following)] = torch.tensor(following)
            if self._wrong is not None:
                token_ids[row, self._wrong :: LENGTH] += 1
        return Draft(lattice.headers, token_ids)


def test_a_draft_counts_up_to_its_first_error(stack: Stack) -> None:
    """Here whole blocks are accepted, and blocks that are right again after an error are not."""
    limits = Limits(20)
    request = Request("r", tuple(range(65, 75)), limits, speculation=Speculation(LENGTH))
    text = collect(decode([request], stack.verifier(1, drafting=False)))["r"]
    knowing = {"all": _Knowing(request, text), "two": _Knowing(request, text, wrong=2)}
    drafter = stack.drafter(LENGTH, 1, NUM_ORACLE_CANDIDATES)
    found = replay(
        [Recorded(request, text)], stack.target, stack.projection, drafter, knowing, num_rows=1
    )
    ((_, answer),) = found
    left = [len(text) - 1 - place for place in range(len(text) - 1)]
    drafted = [min(LENGTH, n - 1) for n in left]
    assert answer.num_drafted == drafted
    assert answer.num_accepted == {
        "all": drafted,
        "two": [min(2, n) for n in drafted],
        ORACLE: answer.num_accepted[ORACLE],
    }
    # 19 tokens after the first: three full blocks and their bonus tokens, then one token plainly.
    assert answer.speculate("all").rounds_by_accepted == [0] * LENGTH + [3]
    assert answer.speculate("two").rounds_by_accepted[2] == 6


class _ForgetfulDrafter:
    """Says that it has no context."""

    def __init__(self, stack: Stack) -> None:
        self._drafter = stack.drafter(LENGTH, NUM_ROWS, NUM_ORACLE_CANDIDATES)

    def draft(self, request):
        self._drafter.release([header.request_id for header in request.headers])
        return self._drafter.draft(request)

    def release(self, request_ids) -> None:
        self._drafter.release(request_ids)


def test_a_drafter_that_loses_context_is_an_error(stack: Stack) -> None:
    request = requests(stack, 0.0)[2]
    answers: Iterator[object] = replay(
        [Recorded(request, tuple(range(70, 87)))],
        stack.target,
        stack.projection,
        _ForgetfulDrafter(stack),
        stack.correctors,
    )
    with pytest.raises(ConfigError, match="lost the context of 1 answers"):
        list(answers)
