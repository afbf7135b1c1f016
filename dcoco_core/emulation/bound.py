"""The most an emulated server can do: every plan tried on the profile, with nothing in between."""

from __future__ import annotations

from dataclasses import dataclass

from dcoco_core.emulation.acceptance import AcceptanceSource
from dcoco_core.emulation.profile import Loop, Profile
from dcoco_core.planning.rounds import Plan, best_of, plans, tokens_per_second


@dataclass(frozen=True, slots=True)
class BestPlan:
    """The best plan, what it commits, and what plain decoding does."""

    plan: Plan
    tokens_per_s: float
    plain_tokens_per_s: float


def best_plan(
    profile: Profile,
    acceptance: AcceptanceSource,
    num_clients: int,
    corrector: str,
    loop: Loop | None = None,
) -> BestPlan:
    """One verifier with a drafter and a corrector of its own, all clients decoding all the time.

    Every length up to what both the profile and the acceptance know is tried with one and with two
    groups. Prompts and the ends of requests are left out, so no server reaches quite so much.
    """
    costs = profile.round_costs(corrector, loop)
    survival = acceptance.survival(corrector)
    longest = min(profile.max_draft_tokens, len(survival))
    candidates = plans(range(longest + 1), 2, num_clients)
    plan, rate = best_of(costs, survival, candidates, num_clients)
    return BestPlan(plan, rate, tokens_per_second(costs, survival, Plan(), num_clients))
