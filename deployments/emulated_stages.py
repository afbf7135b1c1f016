"""Emulated stages out of the application's arguments. Imports no torch.

Paths in the arguments are absolute by now (see `deployments.checkpoints`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dcoco_core.emulation.acceptance import AcceptanceSource, load_acceptance
from dcoco_core.emulation.corrector import EmulatedCorrector
from dcoco_core.emulation.device import Device
from dcoco_core.emulation.drafter import EmulatedDrafter, EmulatedLattice
from dcoco_core.emulation.profile import Cost, Loop, Profile, load_profile
from dcoco_core.emulation.tape import AnswerTape
from dcoco_core.emulation.verifier import EmulatedSizes, EmulatedVerifier
from dcoco_core.errors import ConfigError
from dcoco_core.registry import unknown_name
from dcoco_core.target.folder import resolve_target
from dcoco_core.target.tokenizer import TargetTokenizer
from deployments.loaded import LoadedDrafter, LoadedVerifier
from deployments.pipeline.by_corrector import ByCorrector

if TYPE_CHECKING:
    from deployments.config import AppArgs, EmulationArgs


class EmulatedStages:
    """Implements Stages with stand-ins that keep the protocol and compute nothing."""

    def __init__(self, args: AppArgs, emulation: EmulationArgs) -> None:
        self._args, self._emulation = args, emulation

    @cached_property
    def profile(self) -> Profile:
        """What stages cost. Raises ConfigError, as the two below."""
        return load_profile(Path(self._emulation.profile))

    @cached_property
    def acceptance(self) -> AcceptanceSource:
        """How much of a draft is right."""
        return load_acceptance(self._emulation.acceptance)

    @cached_property
    def tape(self) -> AnswerTape:
        """What the target says: recorded, or random tokens of its vocabulary."""
        if self._emulation.tape is not None:
            return AnswerTape.load(Path(self._emulation.tape))
        return AnswerTape.synthetic(self._vocab_size, seed=self._emulation.seed)

    @cached_property
    def _vocab_size(self) -> int:
        return TargetTokenizer(resolve_target(self._args.target)).vocab_size

    def check(self) -> None:
        """Raises ConfigError for files that are not right, and for unknown correctors."""
        self.correctors()
        if self.tape.vocab_size > self._vocab_size:
            raise ConfigError(
                f"emulation.tape has a vocabulary of {self.tape.vocab_size} tokens, but the "
                f"target's has {self._vocab_size}"
            )

    def verifier(self) -> LoadedVerifier:
        """See Stages."""
        args, device = self._args, self._device()
        sizes = EmulatedSizes(args.max_slots, args.max_model_len, args.prefill_chunk)
        core = EmulatedVerifier(self.tape, self.profile.verifier.stage_cost, device, sizes)

        def device_use() -> dict[str, float]:
            return {"busy_s": device.use.busy_s, "late_s": device.use.late_s}

        return LoadedVerifier(core, self._fingerprint, device_use=device_use)

    def drafter(self, num_candidates: int) -> LoadedDrafter:
        """See Stages."""
        sizes = EmulatedLattice(self.profile.max_draft_tokens, self._args.max_slots, num_candidates)
        cost = self.profile.drafter.stage_cost
        core = EmulatedDrafter(self.tape, self.acceptance, cost, self._device(), sizes)
        return LoadedDrafter(core, self._fingerprint)

    def correctors(self) -> ByCorrector:
        """See Stages. All share one device."""
        device = self._device()
        return ByCorrector(
            {
                name: EmulatedCorrector(
                    _known("acceptance", name, self.acceptance.rates),
                    self.tape,
                    self.acceptance,
                    self.cost(name).stage_cost,
                    device,
                )
                for name in self._args.correctors
            }
        )

    def cost(self, name: str) -> Cost:
        """A corrector's, with the chosen kind of loop for those that have one."""
        known = _known("profile", name, self.profile.correctors)
        chosen = self._emulation.corrector_loop
        loop = None if chosen is None else Loop(chosen)
        return self.profile.corrector(
            known, loop if loop in self.profile.correctors[known] else None
        )

    def _device(self) -> Device:
        return Device(self._emulation.time_scale)

    @property
    def _fingerprint(self) -> str:
        return f"emulated {self.profile.name}"


def _known(place: str, name: str, known: Collection[str]) -> str:
    """A corrector's own name or its family's: what is published tells no variants apart.

    Raises:
        ConfigError: neither is known.
    """
    for candidate in (name, name.split("-")[0]):
        if candidate in known:
            return candidate
    raise ConfigError(unknown_name(f"corrector of emulation.{place}", name, known))
