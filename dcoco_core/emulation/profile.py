"""What the stages of a modelled accelerator cost: YAML files, read and written here."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, ValidationError

from dcoco_core.errors import ConfigError
from dcoco_core.planning.costs import StageCost
from dcoco_core.planning.rounds import RoundCosts
from dcoco_core.registry import unknown_name

PROFILES = Path("configs/emulated/profiles")

# A block of 128 rows and 16 tokens each is far from every overflow; a typo in a unit is not.
_MAX_MS = 60_000.0


class Source(StrEnum):
    """Where a figure comes from."""

    PUBLISHED = "published"
    MEASURED = "measured"
    ASSUMED = "assumed"


class Loop(StrEnum):
    """How a corrector goes over a block.

    PARALLEL in a few passes over the whole block; the others place by place: CAPTURED as one graph
    that is launched once, UNCAPTURED with launches of its own for every place.
    """

    PARALLEL = "parallel"
    CAPTURED = "captured"
    UNCAPTURED = "uncaptured"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cost(_Strict):
    """fixed_ms + row_ms * rows + token_ms * tokens, and where that comes from."""

    fixed_ms: NonNegativeFloat = Field(le=_MAX_MS)
    row_ms: NonNegativeFloat = Field(0.0, le=_MAX_MS)
    token_ms: NonNegativeFloat = Field(0.0, le=_MAX_MS)
    source: Source
    note: str

    @property
    def stage_cost(self) -> StageCost:
        """In seconds."""
        return StageCost(self.fixed_ms / 1e3, self.row_ms / 1e3, self.token_ms / 1e3)


class Profile(_Strict):
    """One accelerator running one target, its drafter and correctors on devices of their own.

    Tokens are counted as in planning.RoundCosts.

    Attributes:
        name: what reports call it.
        about: what was modelled from what.
        max_draft_tokens: proposals of the drafter's block.
        hops_ms: between stages, per round; a transport that is emulated too has its own.
        correctors: costs by name and kind of loop.
    """

    name: str
    about: str
    max_draft_tokens: int = Field(ge=1, le=256)
    verifier: Cost
    drafter: Cost
    hops_ms: NonNegativeFloat = 0.0
    correctors: dict[str, dict[Loop, Cost]]

    def corrector(self, name: str, loop: Loop | None = None) -> Cost:
        """A corrector's cost; without `loop` its best one (a captured loop where there is one).

        Raises:
            ConfigError: the profile knows no such corrector, or not in such a loop.
        """
        if name not in self.correctors:
            raise ConfigError(
                unknown_name(f"corrector of profile {self.name}", name, self.correctors)
            )
        loops = self.correctors[name]
        if loop is None:
            loop = next(kind for kind in Loop if kind in loops)
        if loop not in loops:
            raise ConfigError(unknown_name(f"loop of corrector {name}", loop, loops))
        return loops[loop]

    def round_costs(self, corrector: str, loop: Loop | None = None) -> RoundCosts:
        """For the planner and the search, in seconds of the profile."""
        return RoundCosts(
            self.verifier.stage_cost,
            self.drafter.stage_cost,
            self.corrector(corrector, loop).stage_cost,
            self.hops_ms / 1e3,
        )


def find_profile(name: str) -> Path:
    """A file (`*.yaml`) as it is, or the one of that name in PROFILES.

    Raises:
        ConfigError: no profile has that name.
    """
    if name.endswith(".yaml"):
        return Path(name)
    names = [path.stem for path in PROFILES.glob("*.yaml")]
    if name not in names:
        raise ConfigError(unknown_name(f"profile in {PROFILES}", name, names))
    return PROFILES / f"{name}.yaml"


def load_profile(path: Path) -> Profile:
    """Reads a profile. Raises ConfigError naming the file and the field at fault."""
    try:
        profile = Profile.model_validate(yaml.safe_load(path.read_text()))
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part) for part in item['loc']) or 'the file'}: {item['msg']}"
            for item in error.errors()
        ]
        raise ConfigError(f"profile {path}: {'; '.join(problems)}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"profile {path} cannot be read: {error}") from error
    if empty := [name for name, loops in profile.correctors.items() if not loops]:
        raise ConfigError(f"profile {path}: correctors.{empty[0]} has no costs")
    return profile


def dump_profile(profile: Profile, comment: str = "") -> str:
    """The YAML of a profile, after `comment` lines; `load_profile` gives it back."""
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    data = profile.model_dump(mode="json")
    return lines + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=96)
