"""Whether two texts share wording: the same words, or 13 of them in a row.

Thirteen-word overlap is the rule of Brown et al. 2020, "Language models are few-shot learners",
appendix C. Words are runs of letters and digits in lower case, so that quotation marks and line
breaks do not hide a copy. As there, a run that stands in more than ten prompts is not evidence of
a copy: it is wording that a generator puts into all its questions ("... to its lowest terms. Give
only the simplified fraction as your final answer."), and is disregarded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_NUM_WORDS = 13
_MAX_PROMPTS = 10
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Overlap:
    """What of `num_training` prompts is also in evaluation prompts."""

    num_training: int
    num_exact: int
    num_shared_words: int  # 13 words in a row, exact copies and common wording included
    num_copied: int  # the same without common wording: what training leaves out


class EvaluationText:
    """The evaluation prompts, indexed for look-up."""

    def __init__(self, prompts: Iterable[str]) -> None:
        self._prompts = {_words(prompt) for prompt in prompts}
        runs = Counter(run for words in self._prompts for run in set(_runs(words)))
        self._runs = frozenset(runs)
        self._common = frozenset(run for run, count in runs.items() if count > _MAX_PROMPTS)

    def holds(self, prompt: str) -> bool:
        """Whether an evaluation prompt has the same words."""
        return _words(prompt) in self._prompts

    def shares_words_with(self, prompt: str) -> bool:
        """Whether an evaluation prompt is the same or has 13 words in a row in common."""
        words = _words(prompt)
        return words in self._prompts or any(run in self._runs for run in _runs(words))

    def is_copied_by(self, prompt: str) -> bool:
        """Whether `prompt` shares words that are not common wording: training does without it."""
        words = _words(prompt)
        return words in self._prompts or any(
            run in self._runs and run not in self._common for run in _runs(words)
        )

    def overlap(self, training: Iterable[str]) -> Overlap:
        """Counts the prompts of `training` that are, or come close to, evaluation prompts."""
        num_training = num_exact = num_shared = num_copied = 0
        for prompt in training:
            num_training += 1
            num_exact += self.holds(prompt)
            num_shared += self.shares_words_with(prompt)
            num_copied += self.is_copied_by(prompt)
        return Overlap(num_training, num_exact, num_shared, num_copied)


def _words(prompt: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(prompt.lower()))


def _runs(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return (words[i : i + _NUM_WORDS] for i in range(len(words) - _NUM_WORDS + 1))
