"""Profiles: the files, the fit to the published table, and what they allow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dcoco_core.emulation import published
from dcoco_core.emulation.__main__ import app
from dcoco_core.emulation.acceptance import published_acceptance
from dcoco_core.emulation.bound import best_plan
from dcoco_core.emulation.fit import DRAFT_SHARES, USUAL_SHARE, fit_published, profile_of
from dcoco_core.emulation.profile import PROFILES, Loop, Source, dump_profile, load_profile
from dcoco_core.errors import ConfigError
from dcoco_core.planning.rounds import Plan
from tests.unit.repository import ROOT

USUAL = profile_of(fit_published(USUAL_SHARE))


@pytest.mark.parametrize("share", DRAFT_SHARES)
def test_committed_profiles_are_what_the_fit_says(share: float) -> None:
    profile = profile_of(fit_published(share))
    assert load_profile(ROOT / PROFILES / f"{profile.name}.yaml") == profile


@pytest.mark.parametrize(("share", "worst"), [(0.15, 0.14), (0.25, 0.10), (0.35, 0.06)])
def test_fit_errors_are_what_the_documents_say(share: float, worst: float) -> None:
    fit = fit_published(share)
    assert worst - 0.01 <= fit.worst_error <= worst
    assert fit.mean_error <= 0.055
    assert len(fit.rounds) == 2 * len(published.CLIENTS)


def test_published_rounds_come_from_the_table() -> None:
    rounds = fit_published(0.25).rounds
    assert rounds[0].published_ms == pytest.approx(1000 / 230)
    assert rounds[-1].published_ms == pytest.approx(1000 * 32 * 7.87 / 16076)


def test_the_drafters_share_is_the_assumed_one() -> None:
    fit = fit_published(0.25)
    draft = fit.drafter.seconds(8, 8 * 16)
    assert draft / (draft + fit.verifier.seconds(8, 8 * 16)) == pytest.approx(0.25, abs=0.03)


def test_every_cost_says_where_it_comes_from() -> None:
    assert USUAL.drafter.source is Source.ASSUMED
    assert USUAL.corrector("dcoco").source is Source.ASSUMED
    assert USUAL.corrector("dflash2").source is Source.PUBLISHED
    costs = [USUAL.verifier, USUAL.drafter]
    costs += [cost for loops in USUAL.correctors.values() for cost in loops.values()]
    assert all(cost.note for cost in costs)


def test_sequential_correctors_have_both_loops() -> None:
    captured = USUAL.corrector("dspark")
    assert captured == USUAL.corrector("dspark", Loop.CAPTURED)
    assert captured.fixed_ms < USUAL.corrector("dspark", Loop.UNCAPTURED).fixed_ms
    with pytest.raises(ConfigError, match="captured"):
        USUAL.corrector("dcoco", Loop.CAPTURED)
    with pytest.raises(ConfigError, match="dspark"):
        USUAL.corrector("dsparc")


def test_a_corrector_costs_what_acceptance_and_speedup_say() -> None:
    # 8.999 / 6.49 rounds against 7.909 / 5.88
    assert published.corrector_share("dflash2") == pytest.approx(0.0309, abs=1e-4)
    assert published.corrector_share("none") == 0.0


def test_profiles_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(dump_profile(USUAL, "a comment"))
    assert load_profile(path) == USUAL


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_draft_tokens", 0, "max_draft_tokens"),
        ("verifyer", {}, "verifyer"),
        ("verifier", {"fixed_ms": -1.0, "source": "assumed", "note": ""}, "verifier.fixed_ms"),
        ("drafter", {"fixed_ms": 1.0, "source": "guessed", "note": ""}, "drafter.source"),
        ("correctors", {"dcoco": {}}, "correctors.dcoco"),
    ],
)
def test_bad_profiles_are_refused(field: str, value: object, message: str, tmp_path: Path) -> None:
    data = json.loads(USUAL.model_dump_json()) | {field: value}
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError, match=message):
        load_profile(path)


def test_unreadable_profiles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_profile(tmp_path / "missing.yaml")
    (tmp_path / "broken.yaml").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_profile(tmp_path / "broken.yaml")


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="draft_share"):
        fit_published(share)


def test_best_plan_is_the_best_of_all() -> None:
    best = best_plan(USUAL, published_acceptance(), 1, "dcoco")
    assert best.plan == Plan(15)
    assert best.tokens_per_s / best.plain_tokens_per_s > 5
    crowded = best_plan(USUAL, published_acceptance(), 128, "dcoco")
    assert crowded.plan.num_draft_tokens < 15
    assert crowded.tokens_per_s > best.tokens_per_s


def test_command_fit_writes_and_shows_every_profile(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["fit", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.count("error: worst") == len(DRAFT_SHARES)
    assert load_profile(tmp_path / "b200-qwen3-8b.yaml") == USUAL


def test_command_bound_shows_plans(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(dump_profile(USUAL))
    recorded = ROOT / "tests/unit/emulation/acceptance.json"
    arguments = ["bound", "--profile", str(path), "--clients", "1,32"]
    result = CliRunner().invoke(app, [*arguments, "--acceptance", str(recorded)])
    assert result.exit_code == 0, result.output
    assert "not measured" in result.output
    assert "acceptance (smollm2)" in result.output


def test_command_bound_knows_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    captured, uncaptured = (
        CliRunner().invoke(app, ["bound", "--corrector", "dspark", "--loop", loop])
        for loop in ("captured", "uncaptured")
    )
    assert "1.3 % of a round" in captured.output
    assert "8.9% of a round" in uncaptured.output


def test_command_bound_refuses_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert CliRunner().invoke(app, ["bound", "--clients", "1,x"]).exit_code == 2
    result = CliRunner().invoke(app, ["bound", "--profile", "b200-qwen3-9b"])
    assert isinstance(result.exception, ConfigError)
    assert "Did you mean 'b200-qwen3-8b'" in str(result.exception)
