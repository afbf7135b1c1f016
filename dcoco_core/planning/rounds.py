"""How long a round takes under a plan, and the plan that commits the most tokens a second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dcoco_core.planning.acceptance import expected_committed
from dcoco_core.planning.costs import FREE, StageCost


@dataclass(frozen=True, slots=True, order=True)
class Plan:
    """How the rows of a verifier go around.

    Attributes:
        num_draft_tokens: proposals verified in a round; 0 decodes plainly.
        num_groups: 1 keeps all rows together; of 2 groups one is verified while the other drafts.
    """

    num_draft_tokens: int = 0
    num_groups: int = 1


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """What the stages of a round cost.

    Attributes:
        verifier: rows and their blocks, anchor included.
        drafter: rows and their inputs (the anchor and its masks).
        corrector: rows and their proposals.
        hops_s: on the way between the stages, in which no stage is busy.
        is_corrector_apart: the corrector computes on a device of its own, not on the drafter's.
    """

    verifier: StageCost
    drafter: StageCost
    corrector: StageCost = FREE
    hops_s: float = 0.0
    is_corrector_apart: bool = True


def round_seconds(costs: RoundCosts, plan: Plan, num_rows: int) -> float:
    """In which every row goes around once.

    With one group the stages follow each other: the sum. With two, each group waits for its own
    stages and every device for the work of both, so the slowest of these loops sets the pace.
    """
    length = plan.num_draft_tokens
    if length == 0:
        return costs.verifier.seconds(num_rows, num_rows)
    loops, verify, draft, correct = [], 0.0, 0.0, 0.0
    for rows in group_sizes(num_rows, plan.num_groups):
        own = (
            costs.verifier.seconds(rows, rows * (length + 1)),
            costs.drafter.seconds(rows, rows * (length + 1)),
            costs.corrector.seconds(rows, rows * length),
        )
        loops.append(sum(own) + costs.hops_s)
        verify, draft, correct = verify + own[0], draft + own[1], correct + own[2]
    devices = [verify, draft, correct] if costs.is_corrector_apart else [verify, draft + correct]
    return max(*loops, *devices)


def group_sizes(num_rows: int, num_groups: int) -> list[int]:
    """Rows of each group: as equal as possible, no group empty."""
    groups = min(num_groups, num_rows)
    return [num_rows // groups + (place < num_rows % groups) for place in range(groups)]


def tokens_per_second(
    costs: RoundCosts, survival: Sequence[float], plan: Plan, num_rows: int
) -> float:
    """Committed tokens a second of all rows together, on average."""
    committed = num_rows * expected_committed(survival, plan.num_draft_tokens)
    return committed / round_seconds(costs, plan, num_rows)


def plans(lengths: Iterable[int], max_groups: int, num_rows: int) -> Iterator[Plan]:
    """Every plan there is: plain decoding and single rows have nothing to split."""
    for length in sorted(set(lengths)):
        yield Plan(length)
        if length > 0 and max_groups > 1 and num_rows > 1:
            yield Plan(length, 2)


def best_of(
    costs: RoundCosts, survival: Sequence[float], candidates: Iterable[Plan], num_rows: int
) -> tuple[Plan, float]:
    """The plan with the most tokens a second, and how many; the first one of equals."""
    rated = [(plan, tokens_per_second(costs, survival, plan, num_rows)) for plan in candidates]
    return max(rated, key=lambda pair: pair[1])
