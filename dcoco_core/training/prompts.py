"""Training prompts by source, all on the training side of the split (dcoco_core/prompts.py).

`own` needs nothing. The others read prompts out of an installed package at run time; nothing of
theirs is kept in this repository.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from dcoco_core import prompt_packages
from dcoco_core.errors import ConfigError
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
