"""Training prompts: their side of the split, and none that evaluation asks."""

from __future__ import annotations

import pytest

from dcoco_core.errors import ConfigError
from dcoco_core.evaluation.sets import EvalPrompt, EvalSet
from dcoco_core.prompts import is_evaluation
from dcoco_core.training.prompts import SOURCES, choose_prompts, training_prompts

ROBOTS = [f"Question {n}: please tell me all that you know of robot number {n}" for n in range(40)]
LONG = "the cat that lives next door to us has eaten the whole of my lunch"
TEXTS = [*ROBOTS, *(f"Finish story {number}: {LONG}, so" for number in range(4))]


def asking(name: str, *texts: str) -> EvalSet:
    prompts = [EvalPrompt(text, ({"role": "user", "content": text},)) for text in texts]
    return EvalSet(name, "chat", "own", len(prompts), lambda: prompts, only_evaluation=True)


def missing() -> EvalSet:
    def read() -> list[EvalPrompt]:
        raise ConfigError("not installed")

    return EvalSet("absent", "chat", "absent-package", 1, read)


@pytest.fixture(autouse=True)
def small_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "small", lambda: iter(TEXTS))


def test_wording_of_evaluation_is_left_out() -> None:
    available = training_prompts("small", 1200)
    assert not any(is_evaluation(prompt) for prompt in available)
    copies = [prompt for prompt in available if LONG in prompt]
    assert copies
    chosen = choose_prompts(["small"], 1000, sets=[asking("stories", f"I wrote: {LONG}.")])
    assert chosen.num_left_out == {"small": len(copies)}
    assert [prompt for _, prompt in chosen.prompts] == [p for p in available if p not in copies]
    assert f"evaluation prompts have: small {len(copies)}" in chosen.summary


def test_what_a_generator_says_every_time_is_kept() -> None:
    """Evaluation has the same template: its questions share 13 words with all of training's."""
    template = "now simplify this fraction to its lowest terms and give only the answer {}"
    wording = [template.format(f"{number}/97") for number in range(50, 70)]
    training = [template.format(f"{number}/89") for number in range(20)]
    SOURCES["small"] = lambda: iter(training)  # put back by small_source
    chosen = choose_prompts(["small"], 1000, sets=[asking("fractions", *wording)])
    assert chosen.num_left_out == {"small": 0}
    assert len(chosen.prompts) == len(training_prompts("small", 1200)) > 10


def test_the_number_of_prompts_is_counted_after_leaving_out() -> None:
    copied = training_prompts("small", 1200)[0]
    chosen = choose_prompts(["small"], 3, sets=[asking("one", copied)])
    assert [prompt for _, prompt in chosen.prompts] == training_prompts("small", 1200)[1:4]


def test_sets_that_are_not_installed_are_named() -> None:
    chosen = choose_prompts(["small"], 1, sets=[missing(), asking("there", "something")])
    assert chosen.not_compared == ("absent",)
    assert chosen.summary.endswith("not compared, not installed: absent")


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown source 'sharegpt'"):
        choose_prompts(["sharegpt"], 1, sets=[])
