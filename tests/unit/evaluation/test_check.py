"""The check against real decoding finds agreement where there is some, and only there."""

from __future__ import annotations

import pytest

from dcoco_core.decode import collect, decode
from dcoco_core.evaluation.check import ReplayCheck, check_replay
from dcoco_core.evaluation.measure import Sizes
from dcoco_core.evaluation.replay import Recorded, ReplayedAnswer
from dcoco_core.evaluation.stack import Stack
from dcoco_core.types import Limits, Request, Speculation
from tests.unit.evaluation.tiny_stack import tiny_stack

LENGTH = 5
SIZES = Sizes(num_draft_tokens=LENGTH, num_rows=2)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    return tiny_stack(tmp_path_factory.mktemp("stack"))


@pytest.fixture(scope="module")
def recorded(stack: Stack) -> list[Recorded]:
    speculation = Speculation(LENGTH)
    requests = [
        Request(f"r{n}", tuple(range(65, 75 + n)), Limits(16), speculation=speculation)
        for n in range(3)
    ]
    texts = collect(decode(requests, stack.verifier(2, drafting=False)))
    return [Recorded(request, texts[request.request_id]) for request in requests]


def test_replay_and_decoding_agree(stack: Stack, recorded: list[Recorded]) -> None:
    checks = check_replay(stack, recorded, SIZES)
    assert checks == dict.fromkeys(stack.correctors, ReplayCheck(3, 3, 3))


def test_another_text_is_no_agreement(stack: Stack, recorded: list[Recorded]) -> None:
    first, second, third = recorded
    other = Recorded(second.request, (*second.response_ids[:-1], 2))
    checks = check_replay(stack, [first, other, third], SIZES)
    assert checks["none"] == ReplayCheck(3, 2, 2)


def test_wrong_counts_are_found(
    stack: Stack, recorded: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_accepted(answer: ReplayedAnswer, name: str):
        answer.num_accepted[name] = [0] * len(answer.num_accepted[name])
        return original(answer, name)

    original = ReplayedAnswer.speculate
    monkeypatch.setattr(ReplayedAnswer, "speculate", nothing_accepted)
    assert check_replay(stack, recorded, SIZES)["dcoco"].num_same_counters < 3
