"""Plain answers are kept as they end, and only what is missing is decoded."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcoco_core.decode import collect, decode
from dcoco_core.evaluation.plain import answer_plainly, noise_key_of
from dcoco_core.evaluation.stack import Stack
from dcoco_core.types import Limits, Request, SamplingParams
from tests.unit.evaluation.tiny_stack import tiny_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    return tiny_stack(tmp_path_factory.mktemp("stack"))


def requests(count: int) -> list[Request]:
    made = []
    for number in range(count):
        prompt_ids = tuple(range(65, 75 + number))
        key = noise_key_of(prompt_ids)
        sampling = SamplingParams(2.0, seed=key, noise_key=key)
        made.append(Request(f"r{number}", prompt_ids, Limits(4 + number), sampling))
    return made


def test_an_interrupted_run_goes_on(stack: Stack, tmp_path: Path) -> None:
    wanted, path = requests(5), tmp_path / "answers" / "coupled.jsonl"
    alone = collect(decode(wanted, stack.verifier(1, drafting=False)))
    expected = {one.prompt_ids: alone[one.request_id] for one in wanted}

    made: list[int] = []
    first = answer_plainly(stack, wanted[:3], path, 2, lambda: made.append(1))
    assert len(made) == len(first) == 3
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])  # stopped while it wrote the third

    assert answer_plainly(stack, wanted, path, 4, lambda: made.append(2)) == expected
    assert made.count(2) == 3
    assert answer_plainly(stack, wanted, path, 4, lambda: made.append(3)) == expected
    assert 3 not in made
    assert len(path.read_bytes().splitlines()) == 5
