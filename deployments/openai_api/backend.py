"""What the HTTP side needs of whatever decodes: the seam that its tests fake."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol

from dcoco_core.errors import CapacityError, DcocoError, RequestError
from dcoco_core.types import Request, Speculation, Verdict

Refusal = CapacityError | RequestError


class BackendUnavailableError(DcocoError):
    """The process that held the request died, or cannot be reached."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether requests can be served now, and each stage's state ("ready", "starting", ...).

    Attributes:
        cpu: of the verifier's machine, see deployments/cpu.py; {} if it did not answer.
        device: of an emulated verifier, seconds it was busy and by how much it was late.
    """

    is_ready: bool
    stages: Mapping[str, str]
    cpu: Mapping[str, float] = field(default_factory=dict)
    device: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EmulationFacts:
    """What was modelled: everything measured on it is to be called emulated."""

    profile: str
    time_scale: float
    acceptance: str

    def as_json(self) -> dict[str, object]:
        """For replies and /health."""
        return {"emulated": True, **asdict(self)}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What requests are checked against.

    Attributes:
        served_name: the only value `model` may have.
        max_model_len: prompt and generated tokens together.
        default_speculation: how a request is drafted that does not say.
        max_num_draft_tokens: 0 on a server without a drafter.
        correctors: names a request may choose from.
        emulation: None for a real model.
    """

    served_name: str
    max_model_len: int
    default_speculation: Speculation = field(default_factory=Speculation)
    max_num_draft_tokens: int = 0
    correctors: tuple[str, ...] = ("none",)
    emulation: EmulationFacts | None = None


class Backend(Protocol):
    """Decodes requests and tells how its stages are."""

    def generate(self, request: Request) -> AsyncGenerator[Verdict, None]:
        """One verdict per round, until one carries a finish reason.

        Closing or cancelling the generator frees the request's slots. Raises CapacityError
        (slots and queue are full), RequestError, or BackendUnavailableError.
        """
        ...

    async def health(self) -> Health:
        """The states of all stages."""
        ...
