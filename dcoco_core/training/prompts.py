"""Training prompts by source, all on the training side of the split (dcoco_core/prompts.py).

`own` needs nothing. The others read prompts out of an installed package at run time; nothing of
theirs is kept in this repository. Prompts that share wording with an evaluation prompt
(dcoco_core/overlap.py) are left out as well, whatever side of the split they are on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from dcoco_core import prompt_packages
from dcoco_core.errors import ConfigError
from dcoco_core.evaluation.sets import SETS, EvalSet
from dcoco_core.overlap import EvaluationText
from dcoco_core.prompts import is_evaluation, own_prompts
from dcoco_core.training.topics import TEMPLATES, TOPICS

# Families of reasoning-gym whose questions a small chat model answers in words.
_REASONING_GYM = (
    "gsm_symbolic",
    "chain_sum",
    "simple_equations",
    "fraction_simplification",
    "basic_arithmetic",
    "decimal_arithmetic",
    "products",
    "gcd",
    "lcm",
    "prime_factorization",
    "leg_counting",
    "calendar_arithmetic",
    "time_intervals",
    "power_function",
    "number_sorting",
    "word_sorting",
    "sentence_reordering",
    "family_relationships",
    "syllogism",
    "spell_backward",
    "letter_counting",
)
_BFCL = (
    "simple_python",
    "multiple",
    "parallel",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_irrelevance",
    "multi_turn_base",
)
_REASONING_GYM_SEED = 1_000_003  # evaluation uses seeds below 1,000,000
_REASONING_GYM_SIZE = 200  # questions of each family


def own() -> Iterator[str]:
    """Templates over topics, written for this project."""
    yield from own_prompts(evaluation=False)
    for topic, template in product(TOPICS, TEMPLATES):
        yield template.format(topic)


def reasoning_gym() -> Iterator[str]:
    """Generated questions with training seeds."""
    return prompt_packages.reasoning_gym(_REASONING_GYM, _REASONING_GYM_SIZE, _REASONING_GYM_SEED)


def arena_hard() -> Iterator[str]:
    """Arena-Hard v2.0 questions."""
    yield from prompt_packages.arena_hard()


def ifeval() -> Iterator[str]:
    """IFEval and IFBench instructions."""
    yield from prompt_packages.ifeval()
    yield from prompt_packages.ifbench()


def alpaca_eval() -> Iterator[str]:
    """AlpacaEval instructions."""
    yield from prompt_packages.alpaca_eval()


def bfcl() -> Iterator[str]:
    """The user's first turn of the Berkeley function-calling questions."""
    for category in _BFCL:
        yield from (request.prompt for request in prompt_packages.bfcl(category))


SOURCES: dict[str, Callable[[], Iterator[str]]] = {
    "own": own,
    "reasoning-gym": reasoning_gym,
    "arena-hard": arena_hard,
    "ifeval": ifeval,
    "alpaca-eval": alpaca_eval,
    "bfcl": bfcl,
}


def training_prompts(source: str, max_chars: int) -> list[str]:
    """A source's prompts of at most `max_chars`, without duplicates, training side only."""
    if source not in SOURCES:
        raise ConfigError(f"unknown source {source!r}. Allowed: {', '.join(SOURCES)}.")
    prompts = (prompt.strip() for prompt in SOURCES[source]())
    kept = dict.fromkeys(p for p in prompts if 0 < len(p) <= max_chars and not is_evaluation(p))
    return list(kept)


@dataclass(frozen=True, slots=True)
class ChosenPrompts:
    """What is trained on, and what was left out because evaluation asks it.

    Attributes:
        prompts: (source, prompt) pairs.
        num_left_out: by source, prompts that share wording with an evaluation prompt.
        not_compared: evaluation sets whose package is not installed.
    """

    prompts: list[tuple[str, str]]
    num_left_out: dict[str, int]
    not_compared: tuple[str, ...]

    @property
    def summary(self) -> str:
        """What `generate` prints before it starts."""
        counts = ", ".join(f"{name} {count:,}" for name, count in self.num_left_out.items())
        line = (
            f"{len(self.prompts):,} prompts; left out for wording that evaluation prompts have: "
            f"{counts}"
        )
        if self.not_compared:
            line += f"; not compared, not installed: {', '.join(self.not_compared)}"
        return line


def choose_prompts(
    sources: Sequence[str],
    per_source: int,
    max_chars: int = 1200,
    sets: Iterable[EvalSet] = tuple(SETS.values()),
) -> ChosenPrompts:
    """The first `per_source` prompts of each source that share no wording with evaluation.

    Args:
        sources: names of SOURCES.
        per_source: prompts of each, at most.
        max_chars: longer prompts are not taken.
        sets: whose prompts are kept out.

    Raises:
        ConfigError: an unknown source, or one whose package is not installed.
    """
    texts: list[str] = []
    missing: list[str] = []
    for one in sets:
        try:
            texts += (prompt.text for prompt in one.prompts())
        except ConfigError:  # not installed: it can neither be asked here nor compared with
            missing.append(one.name)
    evaluation = EvaluationText(texts)
    chosen: list[tuple[str, str]] = []
    left_out: dict[str, int] = {}
    for source in dict.fromkeys(sources):
        prompts = training_prompts(source, max_chars)
        kept = [prompt for prompt in prompts if not evaluation.is_copied_by(prompt)]
        left_out[source] = len(prompts) - len(kept)
        chosen += ((source, prompt) for prompt in kept[:per_source])
    return ChosenPrompts(chosen, left_out, tuple(missing))
