"""Replayed answers of the default model, with the drafter of this repository."""

from __future__ import annotations

import pytest

from dcoco_core.decode import collect, decode
from dcoco_core.evaluation.replay import NUM_ORACLE_CANDIDATES, Recorded, replay
from dcoco_core.evaluation.stack import DRAFTER, StackSource, load_stack
from dcoco_core.metrics import SpeculationRecord
from dcoco_core.prompts import own_prompts
from dcoco_core.types import Limits, Request, SamplingParams, Speculation

LENGTH, NUM_TOKENS = 7, 32


@pytest.mark.skipif(not DRAFTER.is_dir(), reason="no drafter weights in this checkout")
def test_rounds_are_those_of_real_decoding() -> None:
    stack = load_stack(StackSource(correctors={"none": None}), numerics="exact")
    limits = Limits(NUM_TOKENS, stack.tokenizer.eos_token_ids)
    speculation = Speculation(LENGTH)
    wanted = [
        Request(f"{rule}-{number}", stack.chat(prompt), limits, sampling, speculation)
        for number, prompt in enumerate(own_prompts(evaluation=True)[:2])
        for rule, sampling in (
            ("greedy", SamplingParams()),
            ("coupled", SamplingParams(temperature=1.0, seed=number, noise_key=number)),
        )
    ]
    records = {request.request_id: SpeculationRecord() for request in wanted}
    verdicts = []
    stages = stack.verifier(4), stack.drafter(LENGTH, 4), stack.correctors["none"]
    for verdict in decode(wanted, *stages):
        records[verdict.request_id].add(verdict)
        verdicts.append(verdict)
    texts = collect(verdicts)
    found = replay(
        [Recorded(request, texts[request.request_id]) for request in wanted],
        stack.target,
        stack.projection,
        stack.drafter(LENGTH, 4, NUM_ORACLE_CANDIDATES),
        stack.correctors,
        4,
    )
    for number, answer in found:
        assert answer.speculate("none") == records[wanted[number].request_id]
    assert any(record.num_accepted for record in records.values())
