"""Emulated stages out of a config, through the real engine and messages, without torch."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dcoco_core.errors import ConfigError
from deployments.checkpoints import check
from deployments.config import AppArgs
from deployments.cpu import cpu_use
from deployments.emulated_stages import EmulatedStages
from tests import tiny_model
from tests.unit.repository import ROOT

# Every stage of the application, in one process, with all messages as envelopes between them.
PROGRAM = """
import asyncio, json, sys
from dcoco_core.types import Limits, Request, SamplingParams, Speculation
from deployments.checkpoints import check
from deployments.config import AppArgs
from deployments.engine import Engine, EngineSettings
from deployments.pipeline.envelope import decode_draft, decode_draft_request, decode_lattice, encode
from deployments.stages import stages_of
from deployments.warm_up import warm_up
import deployments.corrector, deployments.drafter, deployments.verifier

args = check(AppArgs.model_validate(json.loads(sys.argv[1]))).args

class Path:
    def __init__(self, stages):
        self.corrector = stages.correctors()
        self.drafter = stages.drafter(self.corrector.num_candidates).core
    async def draft(self, request):
        lattice = self.drafter.draft(decode_draft_request(encode(request)))
        return decode_draft(encode(self.corrector.correct(decode_lattice(encode(lattice)))))
    async def release(self, request_ids):
        self.drafter.release(request_ids)
    async def check(self):
        return {}

async def main():
    stages = stages_of(args)
    core, path = stages.verifier().core, Path(stages)
    await warm_up(core, path, args)
    engine = Engine(core, path, EngineSettings())
    async def read(n, name, length):
        request = Request(
            f"r{n}", tuple(range(9)), Limits(40), SamplingParams(noise_key=n),
            Speculation(length, name),
        )
        return [t async for v in engine.generate(request) for t in v.token_ids]
    rows = [(n, name, 7 - n) for n, name in enumerate(args.correctors)]
    plain = [await read(n, name, 0) for n, name, _ in rows]
    drafted = await asyncio.gather(*(read(*row) for row in rows))
    await engine.close()
    counts = engine.counts
    print(json.dumps({
        "equal": list(drafted) == plain, "accepted": counts.accepted_tokens,
        "failures": engine.num_draft_failures, "torch": "torch" in sys.modules,
    }))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write_target(tmp_path_factory.mktemp("models") / "target")


def arguments(target: Path, **emulation: Any) -> dict[str, Any]:
    return {
        "target": str(target),
        "emulation": {"profile": "b200-qwen3-8b", **emulation},
        "correctors": {"none": None, "dcoco": None, "dspark-gated": None},
        "default_corrector": "dcoco",
        "max_slots": 4,
    }


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # names of profiles count from there


def test_a_process_of_emulated_stages_decodes_losslessly_and_never_loads_torch(
    target: Path,
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(arguments(target))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout.splitlines()[-1])
    assert said.pop("accepted") > 20
    assert said == {"equal": True, "failures": 0, "torch": False}


def test_facts_say_what_is_emulated(target: Path) -> None:
    checked = check(AppArgs.model_validate(arguments(target, time_scale=3.0)))
    assert checked.facts.emulation is not None
    assert checked.facts.emulation.as_json() == {
        "emulated": True,
        "profile": "b200-qwen3-8b",
        "time_scale": 3.0,
        "acceptance": "published",
    }
    assert checked.facts.max_num_draft_tokens == 15
    assert checked.args.num_draft_tokens == 15
    assert checked.args.deployments == ("Router", "Verifier", "Drafter", "Corrector")


@pytest.mark.parametrize(
    ("emulation", "said"),
    [
        ({"profile": "b200"}, "unknown profile in .*'b200'. Allowed: b200-qwen3-8b,"),
        ({"acceptance": "absent.json"}, "absent.json cannot be read"),
        ({"tape": "absent.json"}, "absent.json"),
    ],
)
def test_wrong_files_are_named(target: Path, emulation: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check(AppArgs.model_validate(arguments(target, **emulation)))


def test_a_tape_with_tokens_that_the_target_lacks_is_refused(target: Path, tmp_path: Path) -> None:
    tape = tmp_path / "tape.json"
    tape.write_text(
        json.dumps({"format": "dcoco-answers-1", "vocab_size": 10**6, "token_ids": [1]})
    )
    with pytest.raises(ConfigError, match=r"emulation\.tape has a vocabulary of 1000000 tokens"):
        check(AppArgs.model_validate(arguments(target, tape=str(tape))))


def test_unknown_correctors_are_named(target: Path) -> None:
    args = check(AppArgs.model_validate(arguments(target))).args
    assert args.emulation is not None
    wrong = args.model_copy(update={"correctors": {"domin": None}})
    with pytest.raises(ConfigError, match=r"emulation.acceptance.*Did you mean 'domino'"):
        EmulatedStages(wrong, args.emulation).check()


def test_the_loop_of_sequential_correctors_is_chosen(target: Path) -> None:
    costs = []
    for loop in ("captured", "uncaptured"):
        args = check(AppArgs.model_validate(arguments(target, corrector_loop=loop))).args
        assert args.emulation is not None
        stages = EmulatedStages(args, args.emulation)
        costs.append([stages.cost(name).fixed_ms for name in ("dcoco", "dspark-gated")])
    assert costs[0][0] == costs[1][0]  # it has no loop
    assert costs[0][1] < costs[1][1]


@pytest.mark.parametrize(
    ("update", "said"),
    [
        ({"drafter": "weights/d"}, "drafter must be null with emulation"),
        ({"correctors": {"dcoco": "weights/c"}}, "correctors.dcoco must be null"),
    ],
)
def test_nothing_is_loaded_beside_emulation(
    target: Path, update: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        AppArgs.model_validate(arguments(target) | update)


def test_cpu_use_grows_with_work() -> None:
    before = cpu_use()
    while (after := cpu_use())["at_s"] < before["at_s"] + 0.1:
        pass
    assert after["cores"] >= 1
    assert after["busy_core_s"] >= before["busy_core_s"] + 0.05
