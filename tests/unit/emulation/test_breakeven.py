"""Break-even costs: put back into a profile, they give the lead that they were computed for."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dcoco_core.emulation.__main__ import app
from dcoco_core.emulation.acceptance import published_acceptance
from dcoco_core.emulation.breakeven import (
    PUBLISHED_LEADS,
    break_even,
    sequential_correctors,
    speedup,
)
from dcoco_core.emulation.profile import Cost, Loop, Profile, Source, find_profile, load_profile
from dcoco_core.errors import ConfigError
from dcoco_core.planning.rounds import Plan, tokens_per_second

PUBLISHED = published_acceptance()


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile(find_profile("b200-qwen3-8b"))


def _rate(profile: Profile, corrector: str, num_clients: int) -> float:
    plan = Plan(profile.max_draft_tokens)
    costs = profile.round_costs(corrector)
    return tokens_per_second(costs, PUBLISHED.survival(corrector), plan, num_clients)


def _with_step(profile: Profile, corrector: str, step_us: float) -> Profile:
    fixed_ms = step_us * profile.max_draft_tokens / 1e3
    cost = Cost(fixed_ms=fixed_ms, row_ms=0, token_ms=0, source=Source.ASSUMED, note="of a test")
    correctors = {**profile.correctors, corrector: {Loop.CAPTURED: cost}}
    return profile.model_copy(update={"correctors": correctors})


@pytest.mark.parametrize("num_clients", [1, 8, 32])
@pytest.mark.parametrize("corrector", ["domino", "dspark"])
def test_the_costs_give_the_leads(profile: Profile, corrector: str, num_clients: int) -> None:
    row = break_even(profile, PUBLISHED, corrector, num_clients)
    for lead in PUBLISHED_LEADS:
        changed = _with_step(profile, corrector, row.step_us_by_lead[lead])
        reached = _rate(changed, "dcoco", num_clients) / _rate(changed, corrector, num_clients)
        assert reached == pytest.approx(lead)
    changed = _with_step(profile, corrector, row.step_us_below_uncorrected)
    assert _rate(changed, corrector, num_clients) == pytest.approx(
        _rate(changed, "none", num_clients)
    )


def test_the_loops_of_the_profile(profile: Profile) -> None:
    row = break_even(profile, PUBLISHED, "domino", 4)
    assert set(row.loops) == {"captured", "uncaptured"}
    captured, uncaptured = row.loops["captured"], row.loops["uncaptured"]
    assert captured.step_us < uncaptured.step_us
    assert captured.lead < uncaptured.lead
    assert captured.lead == pytest.approx(_rate(profile, "dcoco", 4) / _rate(profile, "domino", 4))


def test_the_acceptance_that_a_speedup_needs(profile: Profile) -> None:
    row = speedup(profile, PUBLISHED, 1)
    assert row.over_plain / 6.6 == pytest.approx(
        row.acceptance_length / row.needed_acceptance_length
    )


def test_a_parallel_corrector_is_refused(profile: Profile) -> None:
    assert "lilicorr" not in sequential_correctors(profile)
    with pytest.raises(ConfigError, match=r"'lilicorr'; allowed in profile .*: dspark, domino"):
        break_even(profile, PUBLISHED, "lilicorr", 1)


def test_the_command_ends_in_json() -> None:
    result = CliRunner().invoke(app, ["breakeven", "--clients", "1,4"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output.splitlines()[-1])
    assert report["modelled"] is True
    assert [row["num_clients"] for row in report["break_even"]] == [1, 4, 1, 4]
    assert set(report["break_even"][0]["step_us_by_lead"]) == {"1.06", "1.23"}
