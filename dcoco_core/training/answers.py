"""The target's answers to training prompts, one JSON object a line, gzipped when named .gz."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Literal

from dcoco_core.errors import ConfigError

_LOOP_MIN_TOKENS = 60
_LOOP_DISTINCT = 0.4


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt (chat template included) and what the target answered, end token included."""

    src: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    temperature: float
    loops: bool

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The whole sequence."""
        return self.prompt_ids + self.response_ids


def is_loop(token_ids: tuple[int, ...]) -> bool:
    """Whether an answer repeats itself: over 60 tokens, fewer than 40% of them distinct.

    Acceptance on loops flatters every drafter, so it is reported with and without them.
    """
    return len(token_ids) > _LOOP_MIN_TOKENS and len(set(token_ids)) < _LOOP_DISTINCT * len(
        token_ids
    )


def open_text(path: Path, mode: Literal["r", "a"]) -> IO[str]:
    """Opens a text file, through gzip when it ends in .gz."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt" if mode == "r" else "at", encoding="utf-8")
    return path.open(mode, encoding="utf-8")


def read_answers(path: Path) -> Iterator[Answer]:
    """Yields the answers of a file.

    A last line cut off by an interrupted writer is left out; any other damage is a ConfigError
    naming the line.
    """
    if not path.exists():
        raise ConfigError(
            f"no answers at {path}; `python -m dcoco_core.training generate` makes some"
        )
    with open_text(path, "r") as lines:
        for number, line in enumerate(_whole_lines(lines), 1):
            try:
                yield _parse(line)
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{path} line {number} is not an answer: {error!r}") from error


def _whole_lines(lines: IO[str]) -> Iterator[str]:
    """Lines with their end; stops where an interrupted writer stopped."""
    try:
        yield from (line for line in lines if line.endswith("\n"))
    except EOFError:
        return  # inside a gzip member


def _parse(line: str) -> Answer:
    data = json.loads(line)
    return Answer(
        src=str(data["src"]),
        prompt_ids=tuple(int(i) for i in data["prompt_ids"]),
        response_ids=tuple(int(i) for i in data["response_ids"]),
        temperature=float(data["temperature"]),
        loops=bool(data["loops"]),
    )


def append_answers(path: Path, answers: list[Answer]) -> None:
    """Adds answers to a file; each call writes whole lines (and a whole gzip member)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_text(path, "a") as out:
        out.writelines(json.dumps(asdict(a), separators=(",", ":")) + "\n" for a in answers)


def repair_answers(path: Path) -> int:
    """Drops what an interrupted writer left at the end of a file, so that it can be appended to.

    Returns:
        The number of whole answers.
    """
    if not path.exists():
        return 0
    answers = list(read_answers(path))
    partial = path.with_name(f"partial-{path.name}")
    partial.unlink(missing_ok=True)
    append_answers(partial, answers)
    partial.replace(path)
    return len(answers)
