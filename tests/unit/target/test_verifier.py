"""The batched verifier on a table-driven target: text, caches, context rows, limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dcoco_core.decode import collect, decode
from dcoco_core.drafts import plain_draft
from dcoco_core.errors import CapacityError, RequestError
from dcoco_core.target.verifier import TargetVerifier, VerifierSettings
from dcoco_core.types import FinishReason, Request, SamplingParams, Verdict
from tests.table_target import TableDrafter, TableTarget, TapsAsContext, TopOne, make_request

TARGET = TableTarget()


def make_verifier(**settings: int) -> TargetVerifier:
    sizes = {"max_slots": 4, "max_model_len": 64, "prefill_chunk": 8, **settings}
    return TargetVerifier(TARGET, VerifierSettings(**sizes), TapsAsContext())


def run(requests: list[Request], skill: float | None = None, **settings: int) -> list[Verdict]:
    verifier = make_verifier(**settings)
    drafter = None if skill is None else TableDrafter(TARGET, skill)
    verdicts = list(decode(requests, verifier, drafter, TopOne() if drafter else None))
    assert verifier.num_free_slots == settings.get("max_slots", 4)
    assert drafter is None or not drafter.contexts
    return verdicts


@pytest.mark.parametrize("num_prompt", [1, 2, 7, 8, 9, 30])
def test_plain_text_is_the_tables(num_prompt: int) -> None:
    prompt = tuple(torch.arange(num_prompt).mul(5).remainder(24).tolist())
    tokens = collect(run([make_request(prompt_ids=prompt)]))["r"]
    assert tokens == TARGET.greedy(prompt, 20)


@pytest.mark.parametrize("num_draft_tokens", [1, 3, 7, 15])
@pytest.mark.parametrize("skill", [0.0, 0.6, 1.0])
def test_speculative_text_equals_plain(skill: float, num_draft_tokens: int) -> None:
    verdicts = run([make_request(num_draft_tokens=num_draft_tokens, max_tokens=40)], skill)
    assert collect(verdicts)["r"] == TARGET.greedy((1, 2, 3), 40)
    drafted = [verdict for verdict in verdicts if verdict.num_drafted]
    if skill == 1.0:  # the drafter proposes the target's own argmax: every position is accepted
        assert all(verdict.num_accepted == verdict.num_drafted for verdict in drafted)
    if skill == 0.0:
        assert all(verdict.num_accepted == 0 for verdict in drafted)


def test_seeded_text_does_not_depend_on_draft_or_batch() -> None:
    sampling = SamplingParams(temperature=0.9, top_k=8, top_p=0.9, seed=5, noise_key=5)
    solo = collect(run([make_request(sampling=sampling)]))["r"]
    mates = [make_request(f"m{i}", (i, 3), num_draft_tokens=i, max_tokens=9 + i) for i in range(6)]
    for num_draft_tokens in (0, 2, 9):
        request = make_request(sampling=sampling, num_draft_tokens=num_draft_tokens)
        assert collect(run([*mates[:3], request, *mates[3:]], 0.7))["r"] == solo


def test_mixed_batches_equal_solo() -> None:
    requests = [
        make_request(
            f"r{i}",
            tuple(n % 24 for n in range(1, 2 + i * 3)),
            max_tokens=5 + i,
            num_draft_tokens=i % 5,
        )
        for i in range(9)
    ]
    together = collect(run(requests, 0.5))
    for request in requests:
        assert together[request.request_id] == collect(run([request]))[request.request_id]


def test_a_drafter_that_forgets_is_sent_the_context_again() -> None:
    verifier, drafter = make_verifier(), TableDrafter(TARGET)
    request = make_request(num_draft_tokens=3, max_tokens=40)
    tokens: list[int] = []
    for count, verdict in enumerate(decode([request], verifier, drafter, TopOne())):
        tokens.extend(verdict.token_ids)
        if count in (2, 5):
            drafter.lose()
    assert tuple(tokens) == TARGET.greedy((1, 2, 3), 40)


def test_stale_drafts_are_dropped() -> None:
    verifier = make_verifier()
    verifier.open(make_request(num_draft_tokens=2))
    header = verifier.step(plain_draft()).draft_request.headers[0]
    for stale in (replace(header, generation=7), replace(header, start=header.start - 1)):
        assert verifier.step(plain_draft([stale])).verdicts == ()
    assert len(verifier.step(plain_draft([header])).verdicts) == 1
    assert verifier.step(plain_draft([header])).verdicts == ()  # the same draft twice


@pytest.mark.parametrize("num_draft_tokens", [0, 7])
@pytest.mark.parametrize("num_prompt", range(44, 64))
def test_the_context_ends_at_max_model_len(num_prompt: int, num_draft_tokens: int) -> None:
    prompt = tuple([1, 2] * 40)[:num_prompt]
    request = make_request(prompt_ids=prompt, max_tokens=1000, num_draft_tokens=num_draft_tokens)
    verdicts = run([request], 1.0)
    assert collect(verdicts)["r"] == TARGET.greedy(prompt, 64 - num_prompt)
    assert verdicts[-1].finish_reason is FinishReason.LENGTH


def test_stop_ids_end_a_request_inside_a_block() -> None:
    text = TARGET.greedy((1, 2, 3), 20)
    stop = text[6]
    expected = text[: text.index(stop) + 1]
    verdicts = run([make_request(stop_ids=(stop,), num_draft_tokens=15)], 1.0)
    assert collect(verdicts)["r"] == expected
    assert verdicts[-1].finish_reason is FinishReason.STOP


def test_slots_and_bad_requests() -> None:
    verifier = make_verifier(max_slots=2)
    verifier.open(make_request("a"))
    with pytest.raises(RequestError, match="is open"):
        verifier.open(make_request("a"))
    with pytest.raises(RequestError, match="1 to 63"):
        verifier.open(make_request("long", (1,) * 64))
    with pytest.raises(RequestError, match="1 to 63"):
        verifier.open(make_request("empty", ()))
    with pytest.raises(RequestError, match="0 to 23"):
        verifier.open(make_request("ids", (1, 24)))
    verifier.open(make_request("b"))
    with pytest.raises(CapacityError):
        verifier.open(make_request("c"))
    verifier.close("a")
    verifier.close("a")
    assert verifier.num_free_slots == 1
    verifier.open(make_request("c"))


def test_max_model_len_fits_the_target() -> None:
    with pytest.raises(RequestError, match="128 positions"):
        make_verifier(max_model_len=129)
