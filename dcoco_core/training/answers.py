"""Answers of the target made elsewhere: one JSON object a line, gzipped when named .gz.

`generate` needs none of this: it records what it makes as it makes it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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


def read_answers(path: Path) -> Iterator[Answer]:
    """Yields the answers of a file.

    Raises:
        ConfigError: no such file, or a line that is not an answer; the message names it.
    """
    if not path.exists():
        raise ConfigError(f"no answers at {path}")
    number = 0
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        try:
            for line in lines:
                number += 1
                yield _parse(line)
        except (ValueError, KeyError, TypeError, EOFError) as error:
            raise ConfigError(f"{path} line {number} is not an answer: {error!r}") from error


def _parse(line: str) -> Answer:
    data = json.loads(line)
    return Answer(
        src=str(data["src"]),
        prompt_ids=tuple(int(i) for i in data["prompt_ids"]),
        response_ids=tuple(int(i) for i in data["response_ids"]),
        temperature=float(data["temperature"]),
        loops=bool(data["loops"]),
    )
