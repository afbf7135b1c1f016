from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dcoco_core.emulation import published
from dcoco_core.emulation.acceptance import (
    FORMAT,
    AcceptanceSource,
    published_acceptance,
    recorded_acceptance,
)
from dcoco_core.errors import ConfigError
from dcoco_core.planning.acceptance import expected_committed

RECORDED = Path(__file__).with_name("acceptance.json")


def test_published_rates_give_the_published_lengths() -> None:
    source = published_acceptance()
    for name, corrector in published.CORRECTORS.items():
        length = expected_committed(source.survival(name), published.MAX_DRAFT_TOKENS)
        assert length == pytest.approx(corrector.acceptance_length, abs=1e-6)
    assert source.label == "published"
    assert "assumed" in source.origins["dcoco"]


def test_recorded_counts_become_rates() -> None:
    """100 rounds of 3 proposals: 20 accepted none, 30 one, 10 two, 40 all."""
    source = recorded_acceptance(RECORDED)
    assert source.label == "smollm2"
    assert source.of("dcoco") == pytest.approx((0.8, 50 / 80, 40 / 50))
    assert source.survival("dcoco") == pytest.approx((0.8, 0.5, 0.4))
    assert source.of("none") == pytest.approx((0.5, 0.0))
    assert source.origins["dcoco"].startswith("100 rounds of SmolLM2")


@pytest.mark.parametrize("corrector", ["dcoco", "none"])
def test_drawn_acceptance_follows_the_rates(corrector: str) -> None:
    source = recorded_acceptance(RECORDED)
    num_draws = 20_000
    counts = [source.num_accepted(corrector, f"key {i}", 3) for i in range(num_draws)]
    for place, survival in enumerate(source.survival(corrector)):
        share = sum(count > place for count in counts) / num_draws
        assert share == pytest.approx(survival, abs=0.012)  # over 3.5 standard errors


def test_drawn_published_acceptance_has_the_published_mean() -> None:
    source = published_acceptance()
    num_draws = 10_000
    total = sum(source.num_accepted("none", f"{i}", 15) + 1 for i in range(num_draws))
    assert total / num_draws == pytest.approx(7.909, abs=0.2)


def test_a_draw_is_fixed_and_better_correctors_accept_no_less() -> None:
    source = published_acceptance()
    keys = [f"request {i}" for i in range(300)]
    worse = [source.num_accepted("none", key, 15) for key in keys]
    better = [source.num_accepted("lilicorr", key, 15) for key in keys]
    assert worse == [source.num_accepted("none", key, 15) for key in keys]
    assert all(a <= b for a, b in zip(worse, better, strict=True))
    assert sum(worse) < sum(better)


def test_a_shorter_draft_is_accepted_like_the_start_of_a_longer_one() -> None:
    source = published_acceptance()
    for key in map(str, range(100)):
        whole = source.num_accepted("dcoco", key, 15)
        assert source.num_accepted("dcoco", key, 4) == min(whole, 4)


def test_places_nobody_recorded_are_never_accepted() -> None:
    source = AcceptanceSource("test", {"dcoco": (1.0, 1.0)}, {"dcoco": "made up"})
    assert source.num_accepted("dcoco", "key", 15) == 2


def test_unknown_correctors_are_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'dcoco'"):
        published_acceptance().of("dcocco")


def recording(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(RECORDED.read_text())
    return data | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, FORMAT),
        ({"extra": 1}, "extra"),
        ({"correctors": {"dcoco": {"rounds_by_accepted": [1]}}}, "rounds_by_drafted"),
        (
            {"correctors": {"dcoco": {"rounds_by_accepted": [-1], "rounds_by_drafted": [1]}}},
            "rounds_by_accepted",
        ),
        (
            {"correctors": {"dcoco": {"rounds_by_accepted": [], "rounds_by_drafted": []}}},
            "at least one",
        ),
        (
            {"correctors": {"dcoco": {"rounds_by_accepted": [3, 1], "rounds_by_drafted": [0, 1]}}},
            "same rounds",
        ),
    ],
)
def test_bad_recordings_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "acceptance.json"
    path.write_text(json.dumps(recording(**changes)))
    with pytest.raises(ConfigError, match=message):
        recorded_acceptance(path)


def test_unreadable_recordings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        recorded_acceptance(tmp_path / "missing.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        recorded_acceptance(tmp_path / "broken.json")


@pytest.mark.parametrize("length", [0.5, 16.5])
def test_impossible_lengths_have_no_rate(length: float) -> None:
    with pytest.raises(ValueError, match="acceptance_length"):
        published.constant_rate(length, 15)
