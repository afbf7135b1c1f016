"""Where an emulated draft's acceptance comes from: published lengths, or recorded counts."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from dcoco_core.emulation import published
from dcoco_core.errors import ConfigError
from dcoco_core.metrics import SpeculationRecord
from dcoco_core.planning.acceptance import survival_of
from dcoco_core.registry import unknown_name

FORMAT = "dcoco-acceptance-1"
PUBLISHED = "published"
_DRAWS = 16  # of 32 bits: what one digest holds

# DCOCO publishes no acceptance lengths; LiLiCorr is the closest relative that does.
_DCOCO_STAND_IN = "lilicorr"


@dataclass(frozen=True, slots=True)
class AcceptanceSource:
    """Acceptance by corrector and place in the block.

    Attributes:
        label: "published", or what was recorded ("smollm2"); reports carry it.
        rates: by corrector, [k] the probability that place k is accepted, given that all places
            before it were.
        origins: by corrector, where its rates come from, in words.
    """

    label: str
    rates: Mapping[str, tuple[float, ...]]
    origins: Mapping[str, str]

    def of(self, corrector: str) -> tuple[float, ...]:
        """A corrector's rates. Raises ConfigError for one the source knows nothing of."""
        if corrector not in self.rates:
            raise ConfigError(
                unknown_name(f"corrector of acceptance {self.label}", corrector, self.rates)
            )
        return self.rates[corrector]

    def survival(self, corrector: str) -> tuple[float, ...]:
        """[k]: the probability that places 0..k are all accepted."""
        return survival_of(self.of(corrector))

    def num_accepted(self, corrector: str, key: str, num_draft_tokens: int) -> int:
        """How many proposals of one block are accepted: a fixed draw for every `key`.

        The draws of a key are the same for every corrector, so a better one accepts at least as
        much of the same block. Places past the recorded ones are never accepted.
        """
        rates = self.of(corrector)[:num_draft_tokens]
        for first in range(0, len(rates), _DRAWS):
            draws = _uniforms(f"{key}/{first}")
            for place, rate in enumerate(rates[first : first + _DRAWS], first):
                if draws[place - first] >= rate:
                    return place
        return len(rates)


def load_acceptance(name: str) -> AcceptanceSource:
    """ "published", or a file of recorded counts. Raises ConfigError for one that is not right."""
    return published_acceptance() if name == PUBLISHED else recorded_acceptance(Path(name))


def published_acceptance() -> AcceptanceSource:
    """Qwen3-8B on MATH-500 at temperature 0, each corrector's length as one constant rate."""
    origin = "acceptance length {:g} with 15 proposals, arXiv 2608.20530, as a constant rate"
    lengths = {
        name: corrector.acceptance_length for name, corrector in published.CORRECTORS.items()
    }
    origins = {name: origin.format(length) for name, length in lengths.items()}
    lengths["dcoco"] = lengths[_DCOCO_STAND_IN]
    origins["dcoco"] = f"assumed to be that of {_DCOCO_STAND_IN}: no length is published"
    num_places = published.MAX_DRAFT_TOKENS
    rates = {
        name: (published.constant_rate(length, num_places),) * num_places
        for name, length in lengths.items()
    }
    return AcceptanceSource(PUBLISHED, rates, origins)


class _Counts(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rounds_by_accepted: list[NonNegativeInt]
    rounds_by_drafted: list[NonNegativeInt]


class _Recording(BaseModel):
    model_config = ConfigDict(extra="forbid")
    format: str
    label: str
    target: str
    drafter: str
    setting: str
    correctors: dict[str, _Counts]


def recorded_acceptance(path: Path) -> AcceptanceSource:
    """Reads recorded counts.

    The file is one JSON object: `format` ("dcoco-acceptance-1"), `label` ("smollm2"), `target`,
    `drafter` and `setting` in words, and `correctors`, which holds for every name
    `rounds_by_accepted` and `rounds_by_drafted` as in metrics.SpeculationRecord: [j] counts the
    rounds that accepted, or drafted, j tokens.

    Raises:
        ConfigError: the file is missing or not of that form; the message names the field.
    """
    try:
        recording = _Recording.model_validate(json.loads(path.read_text()))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"acceptance {path}: {place}: {first['msg']}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"acceptance {path} cannot be read: {error}") from error
    if recording.format != FORMAT:
        raise ConfigError(f"acceptance {path}: format is {recording.format!r}, not {FORMAT!r}")
    rates, origins = {}, {}
    for name, counts in recording.correctors.items():
        record = SpeculationRecord(
            rounds_by_accepted=counts.rounds_by_accepted,
            rounds_by_drafted=counts.rounds_by_drafted,
        )
        if record.num_rounds == 0 or sum(record.rounds_by_accepted) != record.num_rounds:
            raise ConfigError(
                f"acceptance {path}: correctors.{name}: both histograms must count the same "
                "rounds, at least one"
            )
        rates[name] = _conditional(record)
        origins[name] = (
            f"{record.num_rounds} rounds of {recording.target} with {recording.drafter}, "
            f"{recording.setting}"
        )
    return AcceptanceSource(recording.label, rates, origins)


def _conditional(record: SpeculationRecord) -> tuple[float, ...]:
    """Survival by place to acceptance given that every place before was accepted."""
    rates, before = [], 1.0
    for survival in record.acceptance_rate_per_position:
        if survival is None or before == 0.0:
            break
        rates.append(min(survival / before, 1.0))
        before = survival
    return tuple(rates)


def _uniforms(key: str) -> list[float]:
    """_DRAWS numbers in [0, 1), the same for the same key on every machine."""
    digest = hashlib.blake2b(key.encode(), digest_size=4 * _DRAWS).digest()
    return [word / 2**32 for word in struct.unpack(f">{_DRAWS}I", digest)]
