"""Emulated stages put together, in real time or on a clock that only sleeping moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from dcoco_core.emulation.acceptance import AcceptanceSource
from dcoco_core.emulation.corrector import EmulatedCorrector
from dcoco_core.emulation.device import Device
from dcoco_core.emulation.drafter import EmulatedDrafter, EmulatedLattice
from dcoco_core.emulation.tape import AnswerTape
from dcoco_core.emulation.verifier import EmulatedSizes, EmulatedVerifier
from dcoco_core.planning.costs import StageCost
from dcoco_core.planning.rounds import RoundCosts
from dcoco_core.types import Limits, Request, SamplingParams, Speculation

TAPE = AnswerTape.synthetic(vocab_size=1000, num_tokens=257)
NUM_PLACES = 15
RATES = {"none": (0.6,) * NUM_PLACES, "dcoco": (0.85,) * NUM_PLACES, "never": (0.0,) * NUM_PLACES}
ACCEPTANCE = AcceptanceSource("test", RATES, dict.fromkeys(RATES, "made up"))
COSTS = RoundCosts(
    StageCost(4.6e-3, 2e-5, 1.2e-5), StageCost(1.6e-3, 0.0, 4e-6), StageCost(2e-4, 0.0, 1e-7)
)


@dataclass
class VirtualClock:
    """Stands still but for sleeping."""

    seconds: float = 0.0

    def read(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def device(self, time_scale: float = 1.0) -> Device:
        return Device(time_scale, self.read, self.sleep)


@dataclass
class Stack:
    """One verifier, drafter and corrector, on a device each."""

    costs: RoundCosts = COSTS
    corrector_name: str = "dcoco"
    num_slots: int = 8
    hidden_size: int = 8
    clock: VirtualClock | None = field(default_factory=VirtualClock)
    time_scale: float = 1.0

    def __post_init__(self) -> None:
        self.devices = [
            Device(self.time_scale) if self.clock is None else self.clock.device(self.time_scale)
            for _ in range(3)
        ]
        sizes = EmulatedSizes(self.num_slots, hidden_size=self.hidden_size)
        self.verifier = EmulatedVerifier(TAPE, self.costs.verifier, self.devices[0], sizes)
        self.drafter = EmulatedDrafter(
            TAPE,
            ACCEPTANCE,
            self.costs.drafter,
            self.devices[1],
            EmulatedLattice(NUM_PLACES, self.num_slots, 2, self.hidden_size),
        )
        self.corrector = EmulatedCorrector(
            self.corrector_name, TAPE, ACCEPTANCE, self.costs.corrector, self.devices[2]
        )


def request(
    name: str,
    max_tokens: int = 40,
    num_draft_tokens: int = 7,
    num_prompt: int = 5,
    noise_key: int | None = None,
) -> Request:
    key = int(name) if noise_key is None else noise_key
    return Request(
        request_id=name,
        prompt_ids=tuple(range(num_prompt)),
        limits=Limits(max_tokens),
        sampling=SamplingParams(noise_key=key),
        speculation=Speculation(num_draft_tokens, "dcoco"),
    )


def answer(asked: Request) -> tuple[int, ...]:
    """What the tape says to a request."""
    first = len(asked.prompt_ids)
    return tuple(TAPE.tokens(asked.sampling.noise_key, first, asked.limits.max_tokens))
