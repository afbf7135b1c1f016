"""Copies are found whatever their punctuation, and 13 words in a row, not 12."""

from __future__ import annotations

import pytest

from dcoco_core.overlap import EvaluationText, Overlap

WORDS = [f"word{number}" for number in range(14)]
TEXT = EvaluationText(["What is the answer?", " ".join(["start", *WORDS, "end"])])
COMMON = [f"give{number}" for number in range(13)]


def templated(number: int, *more: str) -> str:
    """A question of a generator that ends all of them alike."""
    return " ".join([f"question{number}", *COMMON, *more])


@pytest.mark.parametrize(
    ("prompt", "is_there", "is_close"),
    [
        ("what IS the\n answer", True, True),
        ("what is the answer to this", False, False),
        (" ".join(["other", *WORDS[:12]]), False, False),
        (" ".join(["other", *WORDS[:13], "other"]), False, True),
        ("WORD0, " + "; ".join(WORDS[1:]), False, True),
    ],
)
def test_one_prompt(prompt: str, is_there: bool, is_close: bool) -> None:
    assert TEXT.holds(prompt) == is_there
    assert TEXT.shares_words_with(prompt) == is_close
    assert TEXT.is_copied_by(prompt) == is_close


def test_counts() -> None:
    training = ["What is the answer", "something else", " ".join(WORDS)]
    assert TEXT.overlap(training) == Overlap(3, num_exact=1, num_shared_words=2, num_copied=2)


@pytest.mark.parametrize(("num_prompts", "is_copied"), [(10, True), (11, False)])
def test_wording_of_more_than_ten_prompts_is_no_copy(num_prompts: int, is_copied: bool) -> None:
    text = EvaluationText(templated(number) for number in range(num_prompts))
    assert text.shares_words_with(templated(99))
    assert text.is_copied_by(templated(99)) == is_copied


def test_a_copy_is_found_beside_common_wording() -> None:
    text = EvaluationText([*(templated(n) for n in range(11)), templated(11, *WORDS)])
    assert text.is_copied_by(templated(99, *WORDS))
    assert text.is_copied_by(templated(3))
    assert not text.is_copied_by(templated(99, "other"))


def test_a_prompt_that_is_asked_twice_counts_once() -> None:
    assert EvaluationText([templated(0)] * 20).is_copied_by(templated(1))
