"""What a process of a topology loads, whether it computes or emulates. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dcoco_core.protocols import Corrector, Drafter, Verifier


@dataclass(frozen=True, slots=True)
class LoadedVerifier:
    """A verifier and what is to be known of it.

    Attributes:
        fingerprint: the drafter checkpoint whose context rows it makes; None without a drafter.
        cache_bytes: of its caches when they are full; None where there are none.
        device_use: what an emulated device has done so far, by name in seconds; {} for a real one.
    """

    core: Verifier
    fingerprint: str | None
    cache_bytes: int | None = None
    device_use: Callable[[], dict[str, float]] = dict


@dataclass(frozen=True, slots=True)
class LoadedDrafter:
    """A drafter and the checkpoint that it runs."""

    core: Drafter
    fingerprint: str


class Stages(Protocol):
    """Builds the stages of one application, those that a process asks for."""

    def verifier(self) -> LoadedVerifier:
        """The target and its slots."""
        ...

    def drafter(self, num_candidates: int) -> LoadedDrafter:
        """The drafter for correctors that want `num_candidates` per position."""
        ...

    def correctors(self) -> Corrector:
        """Every corrector of the arguments, behind one."""
        ...
