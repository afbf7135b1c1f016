"""What a step of a sequential corrector may cost before a parallel one wins, from a profile alone.

Every figure is arithmetic on a profile and an acceptance source, for blocks of the drafter's full
length in one group: no server is run, nothing is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from dcoco_core.emulation.acceptance import AcceptanceSource
from dcoco_core.emulation.profile import Loop, Profile
from dcoco_core.errors import ConfigError
from dcoco_core.planning.acceptance import expected_committed
from dcoco_core.planning.rounds import Plan, round_seconds, tokens_per_second

# DCOCO's published lead over the strongest competitor, from and to, and over plain decoding.
PUBLISHED_LEADS = (1.06, 1.23)
PUBLISHED_SPEEDUP = 6.6
PARALLEL = "dcoco"
UNCORRECTED = "none"


@dataclass(frozen=True, slots=True)
class LoopCost:
    """A loop that the profile knows, and what follows from it at this load.

    Attributes:
        step_us: its cost per proposal, in microseconds.
        lead: tokens per second of DCOCO over those of the sequential corrector.
        over_uncorrected: tokens per second of the sequential corrector over the drafter's alone.
    """

    step_us: float
    lead: float
    over_uncorrected: float


@dataclass(frozen=True, slots=True)
class BreakEven:
    """One sequential corrector at one load.

    Attributes:
        step_us_by_lead: cost per step, in microseconds, at which DCOCO leads by that factor.
            Negative: it would lead by more if the steps were free.
        step_us_below_uncorrected: cost per step from which the uncorrected drafter is faster.
            Negative: it is faster anyway, the corrector does not accept more.
        loops: the loops of the profile, by name.
    """

    corrector: str
    num_clients: int
    step_us_by_lead: dict[float, float]
    step_us_below_uncorrected: float
    loops: dict[str, LoopCost]


@dataclass(frozen=True, slots=True)
class Speedup:
    """DCOCO over plain decoding at one load.

    Attributes:
        over_plain: tokens per second over plain decoding's.
        acceptance_length: tokens a round commits under the acceptance source.
        needed_acceptance_length: that it would have to commit for PUBLISHED_SPEEDUP; a block cannot
            commit more than its proposals and one.
    """

    num_clients: int
    over_plain: float
    acceptance_length: float
    needed_acceptance_length: float


def sequential_correctors(profile: Profile) -> list[str]:
    """Those whose loops go place by place."""
    return [name for name, loops in profile.correctors.items() if Loop.PARALLEL not in loops]


def break_even(
    profile: Profile, acceptance: AcceptanceSource, corrector: str, num_clients: int
) -> BreakEven:
    """The costs per step at which the order of three correctors changes.

    A round of n rows commits n * E tokens in T seconds. DCOCO leads by R where
    E_dcoco / T_dcoco = R * E_seq / T_seq, which gives T_seq, and what verify and draft leave of it
    is the corrector's, in equal parts over the places of the block.

    Raises:
        ConfigError: the corrector is not one of `sequential_correctors`, or the acceptance source
            does not know it.
    """
    if corrector not in sequential_correctors(profile):
        raise ConfigError(
            f"break-even is for sequential correctors, got {corrector!r}; allowed in profile "
            f"{profile.name}: {', '.join(sequential_correctors(profile))}"
        )
    length = _length(profile, acceptance, (PARALLEL, UNCORRECTED, corrector))
    plan = Plan(length)
    own = expected_committed(acceptance.survival(corrector), length)
    free = round_seconds(profile.round_costs(UNCORRECTED), plan, num_clients)

    def step_us(rival_rate: float, lead: float) -> float:
        round_s = lead * num_clients * own / rival_rate
        return (round_s - free) / length * 1e6

    def rate(name: str, loop: Loop | None = None) -> float:
        costs = profile.round_costs(name, loop)
        return tokens_per_second(costs, acceptance.survival(name), plan, num_clients)

    parallel, uncorrected = rate(PARALLEL), rate(UNCORRECTED)
    loops = {}
    for loop in profile.correctors[corrector]:
        cost = profile.corrector(corrector, loop).stage_cost
        sequential = rate(corrector, loop)
        loops[loop.value] = LoopCost(
            step_us=cost.seconds(num_clients, num_clients * length) / length * 1e6,
            lead=parallel / sequential,
            over_uncorrected=sequential / uncorrected,
        )
    return BreakEven(
        corrector=corrector,
        num_clients=num_clients,
        step_us_by_lead={lead: step_us(parallel, lead) for lead in PUBLISHED_LEADS},
        step_us_below_uncorrected=step_us(uncorrected, 1.0),
        loops=loops,
    )


def speedup(profile: Profile, acceptance: AcceptanceSource, num_clients: int) -> Speedup:
    """How far DCOCO is from the published speedup. Raises ConfigError like `break_even`."""
    plan = Plan(_length(profile, acceptance, (PARALLEL,)))
    costs = profile.round_costs(PARALLEL)
    rounds = round_seconds(costs, plan, num_clients) / round_seconds(costs, Plan(), num_clients)
    committed = expected_committed(acceptance.survival(PARALLEL), plan.num_draft_tokens)
    return Speedup(num_clients, committed / rounds, committed, PUBLISHED_SPEEDUP * rounds)


def _length(profile: Profile, acceptance: AcceptanceSource, names: tuple[str, ...]) -> int:
    """Proposals of a full block, as far as the source knows all of these correctors."""
    return min(profile.max_draft_tokens, *(len(acceptance.of(name)) for name in names))
