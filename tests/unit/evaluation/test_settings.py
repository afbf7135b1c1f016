"""Settings by name, and how each turns a conversation into tokens."""

from __future__ import annotations

import json

import pytest

from dcoco_core.errors import ConfigError
from dcoco_core.evaluation.measure import Sizes
from dcoco_core.evaluation.settings import SETTINGS, settings_named, usual_settings
from dcoco_core.target.tokenizer import TargetTokenizer
from tests.tiny_model import write_target

CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "1 + 1?"}]
SWITCH = (
    "{% for m in messages %}{{ m.content }} {% endfor %}"
    "{% if enable_thinking is defined and enable_thinking %}[think]{% endif %}"
    "{% if enable_thinking is not defined %}[default]{% endif %}"
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> TargetTokenizer:
    return TargetTokenizer(write_target(tmp_path_factory.mktemp("target")))


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> TargetTokenizer:
    folder = write_target(tmp_path_factory.mktemp("thinking"))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": SWITCH}))
    return TargetTokenizer(folder)


def text(tokenizer: TargetTokenizer, name: str) -> str:
    return tokenizer.decode(SETTINGS[name].encode(tokenizer, CHAT))


def test_names_say_rule_temperature_and_reasoning() -> None:
    assert list(SETTINGS) == [
        f"{rule}{reasoning}"
        for reasoning in ("", "-step-by-step", "-thinking")
        for rule in ("greedy", "rejection-t1", "coupled-t1")
    ]
    assert [setting.name for setting in settings_named(["coupled-t1"])] == ["coupled-t1"]
    assert [name for name, s in SETTINGS.items() if not s.is_replayed] == [
        "rejection-t1",
        "rejection-t1-step-by-step",
        "rejection-t1-thinking",
    ]


def test_reasoning_answers_have_a_cap_of_their_own() -> None:
    sizes = Sizes(max_tokens=64, reasoning_tokens=1024)
    assert sizes.cap(SETTINGS["greedy"]) == 64
    assert sizes.cap(SETTINGS["coupled-t1-step-by-step"]) == 1024
    assert sizes.cap(SETTINGS["greedy-thinking"]) == 1024
    assert Sizes(max_tokens=64).cap(SETTINGS["greedy-step-by-step"]) == 512


def test_without_a_switch_an_instruction_is_added(plain: TargetTokenizer) -> None:
    assert text(plain, "greedy").endswith("user: 1 + 1?\nassistant: ")
    asked = text(plain, "greedy-step-by-step")
    assert "Be kind.\nuser: 1 + 1?\n\nThink step by step" in asked
    with pytest.raises(ConfigError, match="no enable_thinking"):
        text(plain, "greedy-thinking")
    assert {s.name for s in usual_settings(plain)} == set(list(SETTINGS)[:6])


def test_a_switch_is_used(thinking: TargetTokenizer) -> None:
    assert text(thinking, "greedy").endswith("1 + 1? ")
    assert text(thinking, "coupled-t1-thinking").endswith("1 + 1? [think]")
    assert {s.name for s in usual_settings(thinking)} == {*list(SETTINGS)[:3], *list(SETTINGS)[6:]}
    assert thinking.decode(thinking.encode_chat(CHAT)).endswith("[default]")
