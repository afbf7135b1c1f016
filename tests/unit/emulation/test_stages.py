"""The emulated stages keep the protocol: the same loop, the same states, the same refusals."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from dcoco_core.arrays import as_tensor, plain_draft
from dcoco_core.emulation.corrector import EmulatedCorrector
from dcoco_core.emulation.drafter import EmulatedDrafter, EmulatedLattice
from dcoco_core.emulation.tape import AnswerTape
from dcoco_core.emulation.verifier import EmulatedSizes, EmulatedVerifier
from dcoco_core.errors import CapacityError, ConfigError, RequestError
from dcoco_core.metrics import SpeculationRecord
from dcoco_core.protocols import Corrector, Drafter, Verifier
from dcoco_core.types import DraftRequest, FinishReason, Limits, Request, Verdict
from tests.unit.emulation.stack import (
    ACCEPTANCE,
    COSTS,
    TAPE,
    Stack,
    VirtualClock,
    answer,
    request,
)
from tests.unit.repository import ROOT


def decode(stack: Stack, requests: list[Request]) -> list[Verdict]:
    """The loop of dcoco_core.decode, which needs torch for its plain drafts."""
    verdicts: list[Verdict] = []
    for item in requests:
        stack.verifier.open(item)
    draft = plain_draft()
    while stack.verifier.num_free_slots < stack.num_slots:
        outcome = stack.verifier.step(draft)
        verdicts.extend(outcome.verdicts)
        stack.drafter.release(v.request_id for v in outcome.verdicts if v.finish_reason is not None)
        draft = stack.corrector.correct(stack.drafter.draft(outcome.draft_request))
    return verdicts


def texts(verdicts: list[Verdict]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for verdict in verdicts:
        found[verdict.request_id] = found.get(verdict.request_id, ()) + verdict.token_ids
    return found


def test_stages_are_what_the_protocols_ask() -> None:
    stack = Stack()
    verifier: Verifier = stack.verifier
    drafter: Drafter = stack.drafter
    corrector: Corrector = stack.corrector
    assert verifier.num_free_slots == 8
    assert corrector.num_candidates == 2
    drafter.release(["unknown"])


@pytest.mark.parametrize("corrector", ["dcoco", "none", "never"])
def test_the_text_is_the_tapes_whatever_is_drafted(corrector: str) -> None:
    requests = [
        request(str(i), 30 + i, num_draft_tokens=i, num_prompt=1 + 50 * i) for i in range(8)
    ]
    stack = Stack(corrector_name=corrector)
    verdicts = decode(stack, requests)
    assert texts(verdicts) == {item.request_id: answer(item) for item in requests}
    ends = [verdict for verdict in verdicts if verdict.finish_reason is not None]
    assert {verdict.finish_reason for verdict in ends} == {FinishReason.LENGTH}
    assert len(ends) == 8
    assert stack.verifier.num_free_slots == stack.drafter.num_free_slots == 8
    assert stack.verifier.num_cached_tokens == 0


def test_acceptance_is_that_of_the_source() -> None:
    record = SpeculationRecord()
    for seed in range(12):
        requests = [request(str(8 * seed + i), 400, num_draft_tokens=7) for i in range(8)]
        for verdict in decode(Stack(), requests):
            if verdict.finish_reason is None:
                record.add(verdict)
    survival = ACCEPTANCE.survival("dcoco")
    for place in range(7):
        rate = record.acceptance_rate_per_position[place]
        assert rate == pytest.approx(survival[place], abs=0.02)


def test_a_stop_id_ends_a_request() -> None:
    asked = request("3", 40)
    stop = answer(asked)[11]
    stopped = replace(asked, limits=Limits(40, frozenset({stop})))
    text = texts(decode(Stack(), [stopped]))["3"]
    assert text == answer(asked)[: answer(asked).index(stop) + 1]


def test_a_round_takes_what_the_profile_says() -> None:
    stack = Stack()
    assert stack.clock is not None
    for i in range(4):
        stack.verifier.open(request(str(i), num_prompt=10))
    outcome = stack.verifier.step(plain_draft())
    assert stack.clock.seconds == pytest.approx(COSTS.verifier.seconds(4, 40))
    before = stack.clock.seconds
    stack.verifier.step(stack.corrector.correct(stack.drafter.draft(outcome.draft_request)))
    expected = COSTS.drafter.seconds(4, 32), COSTS.corrector.seconds(4, 28)
    verify = COSTS.verifier.seconds(4, 32)
    assert stack.clock.seconds - before == pytest.approx(sum(expected) + verify)
    busy = [device.use.busy_s for device in stack.devices]
    assert busy == pytest.approx([before + verify, *expected])


def test_prompts_are_prefilled_in_chunks() -> None:
    stack = Stack()
    stack.verifier.open(request("1", num_prompt=300))
    stack.verifier.open(request("2", num_prompt=300))
    num_cached, num_decided = [], []
    for _ in range(3):
        outcome = stack.verifier.step(plain_draft())
        num_cached.append(stack.verifier.num_cached_tokens)
        num_decided.append(len(outcome.verdicts))
    assert num_cached == [256, 512, 600]
    assert num_decided == [0, 1, 1]


def test_a_request_that_is_reopened_goes_on_with_the_same_text() -> None:
    asked = request("1", 60)
    stack = Stack()
    stack.verifier.open(asked)
    text: tuple[int, ...] = ()
    draft = plain_draft()
    for _ in range(4):
        outcome = stack.verifier.step(draft)
        text += sum((verdict.token_ids for verdict in outcome.verdicts), ())
        draft = stack.corrector.correct(stack.drafter.draft(outcome.draft_request))
    left = asked.limits.max_tokens - len(text)
    reopened = replace(asked, prompt_ids=asked.prompt_ids + text, limits=Limits(left), generation=1)
    assert left > 0
    assert text + texts(decode(Stack(), [reopened]))["1"] == answer(asked)


def test_a_lost_drafter_is_given_the_context_again() -> None:
    stack, fresh = Stack(), Stack()
    asked = request("1", 60)
    stack.verifier.open(asked)
    outcome = stack.verifier.step(plain_draft())
    draft = stack.corrector.correct(stack.drafter.draft(outcome.draft_request))
    outcome = stack.verifier.step(draft)
    lattice = fresh.drafter.draft(outcome.draft_request)  # holds nothing of the request
    assert [gap.num_rows for gap in lattice.gaps] == [0]
    assert lattice.headers == ()
    outcome = stack.verifier.step(fresh.corrector.correct(lattice))
    assert [len(verdict.token_ids) for verdict in outcome.verdicts] == [1]  # decoded plainly
    (header,) = outcome.draft_request.headers
    assert header.context_start == 0
    assert not fresh.drafter.draft(outcome.draft_request).gaps
    assert fresh.drafter.num_context_rows("1") == header.start


def test_stale_rows_are_dropped() -> None:
    stack = Stack()
    stack.verifier.open(request("1"))
    outcome = stack.verifier.step(plain_draft())
    draft = stack.corrector.correct(stack.drafter.draft(outcome.draft_request))
    assert len(stack.verifier.step(draft).verdicts) == 1
    assert stack.verifier.step(draft).verdicts == ()
    stack.verifier.close("1")
    stack.verifier.close("1")
    stack.verifier.open(replace(request("1"), generation=1))
    reopened = stack.verifier.step(plain_draft())
    assert len(reopened.verdicts) == 1
    assert stack.verifier.step(draft).verdicts == ()


def test_a_newer_generation_replaces_the_drafters_state() -> None:
    stack = Stack()
    stack.verifier.open(request("1", num_prompt=9))
    old = stack.verifier.step(plain_draft()).draft_request
    stack.drafter.draft(old)
    newer = DraftRequest(tuple(replace(h, generation=1) for h in old.headers), old.context)
    assert stack.drafter.draft(newer).headers[0].num_draft_tokens == 7
    assert stack.drafter.draft(old).headers[0].num_draft_tokens == 0
    assert stack.drafter.num_free_slots == 7


def test_a_full_drafter_leaves_rows_undrafted() -> None:
    stack, small = Stack(), Stack(num_slots=1)
    for name in "12":
        stack.verifier.open(request(name))
    outcome = stack.verifier.step(plain_draft())
    lattice = small.drafter.draft(outcome.draft_request)
    assert [header.num_draft_tokens for header in lattice.headers] == [7, 0]
    verdicts = stack.verifier.step(small.corrector.correct(lattice)).verdicts
    assert [verdict.num_drafted for verdict in verdicts] == [7, None]


def test_the_uncorrected_draft_is_candidate_0() -> None:
    stack, uncorrected = Stack(), Stack(corrector_name="none")
    for name in "123":
        stack.verifier.open(request(name))
    lattice = stack.drafter.draft(stack.verifier.step(plain_draft()).draft_request)
    draft = uncorrected.corrector.correct(lattice)
    assert lattice.candidate_ids[:, :, 0].tolist() == draft.token_ids.tolist()
    assert (
        np.asarray(lattice.candidate_ids)[..., 0] != np.asarray(lattice.candidate_ids)[..., 1]
    ).all()


def test_bad_requests_are_refused() -> None:
    stack = Stack(num_slots=1)
    with pytest.raises(RequestError, match="prompt"):
        stack.verifier.open(request("1", num_prompt=0))
    stack.verifier.open(request("1"))
    with pytest.raises(RequestError, match="is open"):
        stack.verifier.open(request("1"))
    with pytest.raises(CapacityError, match="1 slots"):
        stack.verifier.open(request("2"))


def test_drafts_that_cannot_be_are_refused() -> None:
    stack = Stack()
    stack.verifier.open(request("1"))
    asked = stack.verifier.step(plain_draft()).draft_request
    with pytest.raises(ValueError, match="context is"):
        stack.drafter.draft(DraftRequest(asked.headers, as_tensor(np.zeros((1, 8)))))
    (header,) = asked.headers
    long = DraftRequest((replace(header, num_draft_tokens=16),), asked.context)
    with pytest.raises(ConfigError, match="at most 15"):
        stack.drafter.draft(long)
    apart = DraftRequest((replace(header, start=header.start + 1),), asked.context)
    with pytest.raises(ValueError, match="before the anchor"):
        stack.drafter.draft(apart)


def test_a_lattice_has_room_for_an_alternative() -> None:
    with pytest.raises(ConfigError, match="num_candidates"):
        EmulatedDrafter(
            TAPE, ACCEPTANCE, COSTS.drafter, VirtualClock().device(), EmulatedLattice(15, 8, 1)
        )


def test_unknown_correctors_are_refused() -> None:
    with pytest.raises(ConfigError, match="dcoco"):
        EmulatedCorrector(
            "decoco", AnswerTape((1, 2), 3), ACCEPTANCE, COSTS.corrector, VirtualClock().device()
        )


def test_without_a_drafter_rows_are_decoded_plainly() -> None:
    stack = Stack()
    plain = EmulatedVerifier(
        AnswerTape((1, 2, 3), 4),
        COSTS.verifier,
        stack.devices[0],
        EmulatedSizes(),
        has_drafter=False,
    )
    plain.open(request("1"))
    assert plain.step(plain_draft()).draft_request.headers == ()
    assert len(plain.step(plain_draft()).verdicts) == 1


def test_stages_load_no_torch() -> None:
    code = (
        "import sys; from tests.unit.emulation.test_stages import Stack, decode, request; "
        "decode(Stack(), [request('1')]); sys.exit('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr or "an emulated stage imports torch"
