"""The ring in real time, a second of it. The machine may be busy, so its clock is asked little."""

from __future__ import annotations

from time import process_time

import pytest

from dcoco_core.arrays import plain_draft
from dcoco_core.planning.costs import StageCost
from dcoco_core.planning.rounds import Plan, RoundCosts, round_seconds
from tests.unit.emulation.pipeline import Pipeline
from tests.unit.emulation.stack import COSTS, Stack, answer, request

NUM_ROWS = 4
LENGTH = 4
NUM_TOKENS = 12  # nothing is accepted: one token a round


async def elapsed(costs: RoundCosts, num_groups: int, time_scale: float = 1.0) -> float:
    stack = Stack(costs, corrector_name="never", clock=None, time_scale=time_scale)
    requests = [request(str(i), NUM_TOKENS, LENGTH) for i in range(NUM_ROWS)]
    pipeline = Pipeline(stack)
    seconds = await pipeline.run(requests, num_groups)
    tokens: dict[str, tuple[int, ...]] = {item.request_id: () for item in requests}
    for verdict in pipeline.verdicts:
        tokens[verdict.request_id] += verdict.token_ids
    assert tokens == {item.request_id: answer(item) for item in requests}
    return seconds


def modelled(costs: RoundCosts, num_groups: int) -> float:
    """All rounds but those at the end, whose drafts are cut to what is left."""
    return (NUM_TOKENS - 1 - LENGTH) * round_seconds(costs, Plan(LENGTH, num_groups), NUM_ROWS)


@pytest.mark.parametrize(("num_groups", "time_scale"), [(1, 1.0), (1, 2.5), (2, 1.0)])
async def test_no_round_is_faster_than_the_profile(num_groups: int, time_scale: float) -> None:
    assert await elapsed(COSTS, num_groups, time_scale) >= time_scale * modelled(COSTS, num_groups)


async def test_two_groups_overlap_their_stages() -> None:
    """Every row is paid for, so that half of the rows take half of the time."""
    costs = RoundCosts(verifier=StageCost(row_s=5e-3), drafter=StageCost(row_s=5e-3))
    assert modelled(costs, 2) == pytest.approx(modelled(costs, 1) / 2)
    one = await elapsed(costs, 1)
    two = [await elapsed(costs, 2)]
    while min(two) > 0.85 * one and len(two) < 4:
        two.append(await elapsed(costs, 2))
    assert min(two) <= 0.85 * one


def test_the_stages_own_work_is_small_beside_the_modelled_time() -> None:
    """Processor time, which does not depend on who else uses the machine."""
    num_rows, num_tokens = 16, 150
    stack = Stack(num_slots=num_rows)
    assert stack.clock is not None
    for i in range(num_rows):
        stack.verifier.open(request(str(i), num_tokens, 15))
    outcome = stack.verifier.step(plain_draft())
    began, modelled_at = process_time(), stack.clock.seconds
    while outcome.draft_request.headers:
        lattice = stack.drafter.draft(outcome.draft_request)
        outcome = stack.verifier.step(stack.corrector.correct(lattice))
    assert process_time() - began <= 0.2 * (stack.clock.seconds - modelled_at)
