"""`python -m dcoco_core.evaluation` from prompts to page, on a tiny target."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dcoco_core.evaluation import session, sets
from dcoco_core.evaluation.__main__ import app
from dcoco_core.evaluation.sets import EvalPrompt, EvalSet
from dcoco_core.prompts import own_prompts
from tests.unit.evaluation.tiny_stack import PREFIX, write_weights

HEADLINE = [
    "acceptance_length",
    "correct_over_round",
    "ratio_dcoco_none",
    "ratio_dcoco_none_t1",
    "ratio_dcoco_best_sequential",
    "oracle_acceptance_length",
    "loop_share",
    "n",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("evaluation")
    write_weights(made)
    return made


@pytest.fixture(autouse=True)
def two_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of our own prompts, so that no package is needed."""
    prompts = own_prompts(evaluation=True)

    def chats(part: list[str]) -> list[EvalPrompt]:
        return [EvalPrompt(text, ({"role": "user", "content": text},)) for text in part]

    chosen = {
        "first": EvalSet("first", "chat", "own", 4, lambda: chats(prompts[:6])),
        "second": EvalSet("second", "chat", "own", 4, lambda: chats(prompts[6:12])),
    }
    monkeypatch.setattr(sets, "SETS", chosen)
    monkeypatch.setattr(session, "SOURCES", ("own",))


def run(folder: Path, command: str, *more: str) -> Result:
    arguments = [command, "--target", str(folder / "target"), "--weights", str(folder / "weights")]
    arguments += ["--prefix", PREFIX, "--threads", "1", "--sets", "first,second"]
    return CliRunner().invoke(
        app, [*arguments, "--max-tokens", "12", "--timed-prompts", "2", *more]
    )


def headline(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    line: dict[str, object] = json.loads(result.stdout.splitlines()[-1])
    return line


def test_quick_ends_in_the_line(folder: Path) -> None:
    out = folder / "quick"
    options = ("--prompts-per-set", "3", "--sampled-prompts", "2", "--out", str(out))
    line = headline(run(folder, "quick", *options))
    assert list(line) == HEADLINE
    assert line["n"] == 6
    lengths = line["acceptance_length"]
    assert isinstance(lengths, dict)
    assert list(lengths) == ["none", "dcoco"]
    assert all(1.0 <= value <= line["oracle_acceptance_length"] for value in lengths.values())
    assert line["ratio_dcoco_none"] == pytest.approx(lengths["dcoco"] / lengths["none"], abs=1e-3)
    assert line["ratio_dcoco_none_t1"] is not None
    assert line["ratio_dcoco_best_sequential"] is None
    saved = json.loads((out / "evaluation.json").read_text())
    assert saved["headline"] == line
    assert saved["sizes"]["max_tokens"] == 12


def test_full_makes_a_page_and_goes_on_where_it_was_stopped(folder: Path) -> None:
    out, page = folder / "full", folder / "page"
    options = [
        "--prompts-per-set",
        "2",
        "--sampled-prompts",
        "2",
        "--out",
        str(out),
        "--page",
        str(page),
    ]
    options += ["--settings", "greedy,coupled-t1,rejection-t1"]
    line = headline(run(folder, "full", *options))
    text = (page / "evaluation.md").read_text()
    for part in (
        "## greedy",
        "## coupled-t1",
        "## rejection-t1",
        "## Stages at 32 rows",
        "| @16 |",
    ):
        assert part in text
    plots = sorted(path.name for path in page.glob("*.png"))
    assert len(plots) == 9
    assert all(f"({plot})" in text for plot in plots)
    html = (page / "evaluation.html").read_text()
    assert html.count("data:image/png;base64,") == len(plots)
    assert ".png" not in html
    assert {"src=", "href="} & set(re.findall(r"\w+=", html)) == {"src="}
    figures = json.loads((page / "evaluation.json").read_text())
    assert list(figures["sets_longer"]) == ["greedy", "coupled-t1", "rejection-t1"]
    assert figures["sets_longer"]["greedy"]["sets"] == 2
    assert set(figures["settings"]["greedy"]["all sets"]["dcoco_over"]) == {"none"}
    assert [times["num_rows"] for times in figures["stages"]] == [1, 32]
    checks = figures["checks"]
    assert list(checks) == ["greedy", "coupled-t1"]
    for name in ("none", "dcoco"):
        assert checks["greedy"][name]["num_prompts"] == 4
        assert (
            checks["greedy"][name]["num_same_counters"] == checks["greedy"][name]["num_same_text"]
        )

    # One unit is lost: it is measured again, to the same figures, and nothing else is.
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("*.json")}
    lost = out / "results" / "greedy" / "second.json"
    assert len(kept) == 8
    lost.unlink()
    again = headline(run(folder, "full", *options))
    assert {k: v for k, v in again.items() if k != "correct_over_round"} == {
        k: v for k, v in line.items() if k != "correct_over_round"
    }
    changed = [path for path, time in kept.items() if path.stat().st_mtime_ns != time]
    assert changed == [lost]


def test_one_corrector_alone_has_nothing_to_be_compared_with(folder: Path) -> None:
    options = ("--prompts-per-set", "2", "--sampled-prompts", "1", "--correctors", "dcoco")
    line = headline(run(folder, "quick", *options, "--out", str(folder / "alone")))
    assert list(line) == HEADLINE
    assert isinstance(line["acceptance_length"], dict)
    assert list(line["acceptance_length"]) == ["dcoco"]
    assert line["ratio_dcoco_none"] is line["ratio_dcoco_none_t1"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--settings", "coupled-t1"], "need 'greedy' among them"),
        (["--settings", "greedy,greedi"], "unknown setting 'greedi'. Did you mean 'greedy'"),
        (["--max-tokens", "4000"], "positions, there are"),
        (["--reasoning-tokens", "4000"], "positions, there are"),
        (["--correctors", "none,dcocoa"], "unknown corrector 'dcocoa'. Did you mean 'dcoco'"),
    ],
)
def test_what_cannot_be_is_refused(folder: Path, options: list[str], message: str) -> None:
    result = run(folder, "full", *options, "--out", str(folder / "bad"))
    assert result.exit_code != 0
    assert message in str(result.exception)
