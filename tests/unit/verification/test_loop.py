"""The real rules inside the decoding loop, with toys for everything else."""

from __future__ import annotations

import pytest

from dcoco_core.decode import collect, decode
from dcoco_core.metrics import SpeculationRecord
from dcoco_core.types import FinishReason, Limits, Request, SamplingParams, Speculation, Verdict
from tests.toys import ToyCorrector, ToyDrafter, ToyVerifier, draft_table, target_table

TARGET = target_table()
SAMPLINGS = [
    SamplingParams(),
    SamplingParams(temperature=0.9, seed=7, noise_key=7),
    SamplingParams(temperature=0.7, top_k=50, top_p=0.9, seed=8, noise_key=8),
]


def request(
    index: int, sampling: SamplingParams, length: int, limits: Limits | None = None
) -> Request:
    return Request(
        request_id=f"r{index}",
        prompt_ids=tuple(range(index % 5, index % 5 + 3)),
        limits=limits or Limits(24),
        sampling=sampling,
        speculation=Speculation(length, "toy"),
    )


def run(requests: list[Request], drafter: str | None, num_slots: int = 4) -> list[Verdict]:
    if drafter is None:
        return list(decode(requests, ToyVerifier(TARGET, num_slots)))
    table = draft_table(drafter, TARGET)
    toys = ToyVerifier(TARGET, num_slots), ToyDrafter(table), ToyCorrector(table)
    verdicts = list(decode(requests, *toys))
    assert not toys[0].sequences
    assert not toys[1].contexts
    return verdicts


@pytest.mark.parametrize("drafter", ["ar", "bad"])
@pytest.mark.parametrize("length", [1, 4, 9])
def test_greedy_and_seeded_texts_are_those_of_plain_decoding(drafter: str, length: int) -> None:
    plain = collect(run([request(i, SAMPLINGS[i % 3], 0) for i in range(9)], None))
    assert all(len(tokens) == 24 for tokens in plain.values())
    mixed = [request(i, SAMPLINGS[i % 3], length if i % 4 else 0) for i in range(9)]
    assert collect(run(mixed, drafter)) == plain


def test_greedy_text_is_the_targets_argmax() -> None:
    tokens = collect(run([request(0, SAMPLINGS[0], 5)], "ar"))["r0"]
    two_back, one_back = 1, 2
    for token in tokens:
        assert token == int(TARGET[two_back, one_back].argmax())
        two_back, one_back = one_back, token


def test_a_drafter_that_knows_the_target_is_always_accepted() -> None:
    verdicts = list(
        decode(
            [request(0, SAMPLINGS[0], 5)],
            ToyVerifier(TARGET),
            ToyDrafter(TARGET),
            ToyCorrector(TARGET),
        )
    )
    record = SpeculationRecord()
    for verdict in verdicts:
        record.add(verdict)
    assert record.acceptance_rate == 1.0
    assert [verdict.num_drafted for verdict in verdicts] == [None, 5, 5, 5, 4]
    assert verdicts[-1].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("length", [0, 1, 3, 16])
def test_stop_ids_end_the_text_where_plain_decoding_ends(length: int) -> None:
    text = collect(run([request(0, SAMPLINGS[0], 0)], None))["r0"]
    stop = text[7]
    expected = text[: text.index(stop) + 1]
    limited = request(0, SAMPLINGS[0], length, Limits(24, frozenset({stop})))
    verdicts = run([limited], "ar")
    assert collect(verdicts)["r0"] == expected
    assert verdicts[-1].finish_reason is FinishReason.STOP


def test_unseeded_requests_do_not_repeat_each_other() -> None:
    requests = [
        request(5 * i, SamplingParams(temperature=1.0, noise_key=1000 + i), 3) for i in range(20)
    ]
    texts = collect(run(requests, "bad"))
    assert len(set(texts.values())) == 20
    assert len({tokens[0] for tokens in texts.values()}) > 5
