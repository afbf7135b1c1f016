"""The planner over emulated stages, with the real messages, on a clock that only sleeping moves.

And over the committed profiles. What an engine has to do with a plan is done here in the smallest
way: see docs/planning.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dcoco_core.arrays import as_tensor, plain_draft
from dcoco_core.emulation.acceptance import published_acceptance
from dcoco_core.emulation.bound import best_plan
from dcoco_core.emulation.profile import PROFILES, load_profile
from dcoco_core.planning.acceptance import survival_of
from dcoco_core.planning.planner import Planner, PlannerSettings, Stage
from dcoco_core.planning.rounds import Plan, RoundCosts, best_of, plans, tokens_per_second
from dcoco_core.types import ContextGap, Draft, DraftRequest, Verdict
from tests.unit.emulation.stack import COSTS, NUM_PLACES, RATES, Stack, answer, request
from tests.unit.planning.virtual_pipeline import VirtualPipeline
from tests.unit.repository import ROOT

SETTINGS = PlannerSettings(max_groups=1)
NUM_TOKENS = 900
DEAR_DRAFTS = replace(COSTS, drafter=COSTS.drafter.scaled(40))


class PlannedLoop:
    """One group of rows; the planner sees what each stage took and what was accepted."""

    def __init__(self, stack: Stack, planner: Planner) -> None:
        assert stack.clock is not None
        self.stack, self.planner, self.clock = stack, planner, stack.clock
        self.verdicts: list[Verdict] = []
        self.plans: list[Plan] = []

    def run(self, num_rows: int, num_tokens: int) -> float:
        """Committed tokens a second while all rows decode: without prompts and the last rows."""
        requests = [request(str(i), num_tokens, NUM_PLACES) for i in range(num_rows)]
        for item in requests:
            self.stack.verifier.open(item)
        draft = self._first_draft()
        began, num_before = self.clock.seconds, len(self.verdicts)
        ended, num_until = began, num_before
        while self.stack.verifier.num_free_slots < self.stack.num_slots:
            asked = self._verify(draft)
            draft = self._draft(asked) if asked.headers else plain_draft()
            if len(asked.headers) == num_rows:
                ended, num_until = self.clock.seconds, len(self.verdicts)
        text = {item.request_id: () for item in requests} | _texts(self.verdicts)
        assert text == {item.request_id: answer(item) for item in requests}
        counted = self.verdicts[num_before:num_until]
        return sum(len(verdict.token_ids) for verdict in counted) / (ended - began)

    def _first_draft(self) -> Draft:
        outcome = self.stack.verifier.step(plain_draft())
        self.verdicts.extend(outcome.verdicts)
        return self._draft(outcome.draft_request)

    def _verify(self, draft: Draft) -> DraftRequest:
        num_open = self.stack.num_slots - self.stack.verifier.num_free_slots
        width = draft.token_ids.shape[1] + 1
        num_tokens = sum(min(h.num_draft_tokens + 1, width) for h in draft.headers)
        num_tokens += num_open - len(draft.headers)
        began = self.clock.seconds
        outcome = self.stack.verifier.step(draft)
        taken = self.clock.seconds - began
        self.planner.observe_stage(Stage.VERIFIER, num_open, num_tokens, taken)
        self.verdicts.extend(outcome.verdicts)
        for verdict in outcome.verdicts:
            if verdict.num_drafted and verdict.finish_reason is None:
                self.planner.observe_round("dcoco", verdict.num_drafted, verdict.num_accepted)
        self.stack.drafter.release(v.request_id for v in outcome.verdicts if v.finish_reason)
        return outcome.draft_request

    def _draft(self, asked: DraftRequest) -> Draft:
        rows = Counter(header.corrector for header in asked.headers)
        plan = self.planner.next_plan(rows)
        self.plans.append(plan)
        if plan.num_draft_tokens == 0:
            return undrafted(asked)
        length = plan.num_draft_tokens
        headers = tuple(
            replace(header, num_draft_tokens=min(header.num_draft_tokens, length))
            for header in asked.headers
        )
        began = self.clock.seconds
        lattice = self.stack.drafter.draft(DraftRequest(headers, asked.context))
        drafted = self.clock.seconds
        draft = self.stack.corrector.correct(lattice)
        num_rows, num_places = lattice.candidate_ids.shape[:2]
        if num_rows:
            self.planner.observe_stage(
                Stage.DRAFTER, num_rows, num_rows * (num_places + 1), drafted - began
            )
            self.planner.observe_stage(
                Stage.CORRECTOR, num_rows, num_rows * num_places, self.clock.seconds - drafted
            )
        return draft


def undrafted(asked: DraftRequest) -> Draft:
    """Rows that stay at the verifier: the drafter has not seen their context, so it counts as
    not sent and travels with the next header that does go out."""
    gaps = tuple(ContextGap(h.request_id, h.generation, h.context_start) for h in asked.headers)
    return Draft((), as_tensor(np.empty((0, 0), dtype=np.int64)), gaps=gaps)


def _texts(verdicts: list[Verdict]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for verdict in verdicts:
        found[verdict.request_id] = found.get(verdict.request_id, ()) + verdict.token_ids
    return found


def best_and_plain(costs: RoundCosts, num_rows: int) -> tuple[float, float]:
    survival = survival_of(RATES["dcoco"])
    _, best = best_of(costs, survival, plans(SETTINGS.lengths, 1, num_rows), num_rows)
    return best, tokens_per_second(costs, survival, Plan(), num_rows)


@pytest.mark.parametrize("num_rows", [1, 8])
@pytest.mark.parametrize("costs", [COSTS, DEAR_DRAFTS], ids=["usual", "dear drafts"])
def test_planned_rounds_reach_what_the_search_finds(costs: RoundCosts, num_rows: int) -> None:
    stack = Stack(costs, num_slots=8)
    loop = PlannedLoop(stack, Planner(SETTINGS, priors=costs))
    reached = loop.run(num_rows, NUM_TOKENS)
    best, plain = best_and_plain(costs, num_rows)
    assert reached >= 0.95 * best
    assert reached >= 0.97 * plain


def test_plain_rounds_and_drafted_ones_mix_without_gaps_at_the_drafter() -> None:
    loop = PlannedLoop(Stack(), Planner(SETTINGS))
    loop.run(4, 200)
    lengths = [plan.num_draft_tokens for plan in loop.plans]
    assert 0 in lengths
    assert max(lengths) == 15
    assert loop.stack.drafter.num_free_slots == 8


@pytest.mark.parametrize("num_clients", [1, 8, 32, 128])
@pytest.mark.parametrize("name", ["b200-qwen3-8b", "b200-qwen3-8b-draft35"])
def test_planner_on_the_committed_profiles(name: str, num_clients: int) -> None:
    """With times that vary; groups queue for the stages in a simulation of their own."""
    profile = load_profile(ROOT / PROFILES / f"{name}.yaml")
    source = published_acceptance()
    pipeline = VirtualPipeline(
        profile.round_costs("dcoco"), source.of("dcoco"), num_clients, noise=0.05
    )
    planner = Planner(PlannerSettings())
    pipeline.run(planner, 200)
    best = best_plan(profile, source, num_clients, "dcoco")
    reached = pipeline.run(planner, 200).tokens_per_s
    assert reached >= 0.95 * best.tokens_per_s
    assert reached >= 0.97 * best.plain_tokens_per_s
