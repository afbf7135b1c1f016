"""Recorded answers as one long tape: what an emulated target would say next."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dcoco_core.errors import ConfigError

FORMAT = "dcoco-answers-1"


@dataclass(frozen=True, slots=True)
class AnswerTape:
    """A request reads the tape from a place that its noise key decides, around and around.

    The token of a position depends on key and position alone. So an emulated request says the same
    whatever is drafted and however often it is reopened with what it has committed as its prompt,
    and it ends where its limits say, or at a stop id that the tape happens to hold.
    """

    token_ids: tuple[int, ...]
    vocab_size: int

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise ConfigError("a tape needs at least one token")
        if self.vocab_size < 2:
            raise ConfigError(f"vocab_size must be at least 2, got {self.vocab_size}")
        if not 0 <= min(self.token_ids) <= max(self.token_ids) < self.vocab_size:
            raise ConfigError(f"token ids of a tape must be 0 to {self.vocab_size - 1}")

    @classmethod
    def synthetic(cls, vocab_size: int, num_tokens: int = 4096, seed: int = 0) -> AnswerTape:
        """A tape of random tokens, for when no text is needed."""
        random = Random(seed)
        return cls(tuple(random.randrange(vocab_size) for _ in range(num_tokens)), vocab_size)

    @classmethod
    def load(cls, path: Path) -> AnswerTape:
        """Reads a JSON object of `format` ("dcoco-answers-1"), `vocab_size` and `token_ids`.

        Raises:
            ConfigError: the file is missing or not of that form.
        """
        try:
            data = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"tape {path} cannot be read: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ConfigError(f"tape {path}: format must be {FORMAT!r}")
        token_ids, vocab_size = data.get("token_ids"), data.get("vocab_size")
        if not isinstance(token_ids, list) or not all(type(item) is int for item in token_ids):
            raise ConfigError(f"tape {path}: token_ids must be a list of integers")
        if type(vocab_size) is not int:
            raise ConfigError(f"tape {path}: vocab_size must be an integer")
        return cls(tuple(token_ids), vocab_size)

    def tokens(self, noise_key: int, start: int, count: int) -> list[int]:
        """A request's tokens at the absolute positions start..start + count - 1."""
        first, size = self._first(noise_key) + start, len(self.token_ids)
        return [self.token_ids[(first + place) % size] for place in range(count)]

    def other(self, token_id: int) -> int:
        """A token that is not this one."""
        return (token_id + 1) % self.vocab_size

    def _first(self, noise_key: int) -> int:
        digest = hashlib.blake2b(str(noise_key).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % len(self.token_ids)
