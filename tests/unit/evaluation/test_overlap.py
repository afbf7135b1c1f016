"""Copies are found whatever their punctuation, and 13 words in a row, not 12."""

from __future__ import annotations

import pytest

from dcoco_core.evaluation.overlap import EvaluationText, Overlap

WORDS = [f"word{number}" for number in range(14)]
TEXT = EvaluationText(["What is the answer?", " ".join(["start", *WORDS, "end"])])


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


def test_counts() -> None:
    training = ["What is the answer", "something else", " ".join(WORDS)]
    assert TEXT.overlap(training) == Overlap(num_training=3, num_exact=1, num_shared_words=2)
