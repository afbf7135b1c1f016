"""`python -m dcoco_core.evaluation`: acceptance and speed of every corrector there are weights for.

`quick` asks a few prompts of every set, `full` all of them; both can be stopped and started again.
`overlap` counts training prompts that come close to evaluation prompts.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dcoco_core.errors import DcocoError
from dcoco_core.evaluation.measure import Sizes
from dcoco_core.evaluation.page import markdown
from dcoco_core.evaluation.plots import write_plots
from dcoco_core.evaluation.report import Report
from dcoco_core.evaluation.session import Plan, count_overlap, evaluate
from dcoco_core.evaluation.sets import SETS, evaluation_sets
from dcoco_core.evaluation.settings import settings_named, usual_settings
from dcoco_core.evaluation.stack import (
    PREFIX,
    WEIGHTS,
    StackSource,
    load_stack,
    trained_correctors,
)
from dcoco_core.target.folder import DEFAULT_TARGET, resolve_target
from dcoco_core.target.tokenizer import TargetTokenizer

app = typer.Typer(
    help="Measure drafter and correctors.", no_args_is_help=True, add_completion=False
)
Target = Annotated[str, typer.Option(help="target: folder, GGUF file, hub id or packaged name")]
Weights = Annotated[Path, typer.Option(help="folder of <prefix>-dflash and <prefix>-<corrector>")]
Prefix = Annotated[str, typer.Option(help="how the names of the weights' folders begin")]
Threads = Annotated[int, typer.Option(help="CPU threads")]
Length = Annotated[int, typer.Option(help="proposals of a block, all verified")]
Names = Annotated[str, typer.Option(help="comma-separated names")]
Out = Annotated[Path, typer.Option(help="answers and results are kept and found here")]
RUNS, RESULTS = Path("runs/evaluation"), Path("docs/results")
_ALL_SETS = ",".join(SETS)


@app.command()
def quick(
    target: Target = DEFAULT_TARGET,
    weights: Weights = WEIGHTS,
    prefix: Prefix = PREFIX,
    sets: Names = _ALL_SETS,
    prompts: Annotated[int, typer.Option(help="prompts of each set")] = 6,
    sampled_prompts: Annotated[int, typer.Option(help="the same at temperature 1")] = 3,
    max_tokens: Annotated[int, typer.Option(help="longest answer")] = 96,
    timed_prompts: Annotated[int, typer.Option(help="prompts decoded to take times")] = 4,
    num_draft_tokens: Length = 7,
    threads: Threads = 2,
    out: Out = RUNS / "quick",
) -> None:
    """A few prompts of every set, greedy and at temperature 1; ends in one line of JSON."""
    plan = Plan(
        evaluation_sets(sets.split(",")),
        settings_named(["greedy", "rejection-t1"]),
        Sizes(prompts, max_tokens, max_prompt_tokens=320, num_draft_tokens=num_draft_tokens),
        sampled_prompts=sampled_prompts,
        sampled_correctors=("none", "dcoco"),
        timed_prompts=timed_prompts,
        timed_tokens=48,
        timed_rows=(),
        one_unit=True,
    )
    report = _run(plan, _source(target, weights, prefix), threads, out)
    report.save(out / "evaluation.json")
    typer.echo(json.dumps(report.headline()))


@app.command()
def full(
    target: Target = DEFAULT_TARGET,
    weights: Weights = WEIGHTS,
    prefix: Prefix = PREFIX,
    sets: Names = _ALL_SETS,
    settings: Annotated[
        str | None, typer.Option(help="comma-separated; usual ones if not given")
    ] = None,
    prompts: Annotated[int | None, typer.Option(help="prompts of each set; all by default")] = None,
    sampled_prompts: Annotated[int | None, typer.Option(help="where correctors decode")] = 24,
    max_tokens: Annotated[int, typer.Option(help="longest answer; 512 when reasoning")] = 256,
    timed_prompts: Annotated[int, typer.Option(help="prompts decoded to take times")] = 10,
    num_draft_tokens: Length = 7,
    threads: Threads = 2,
    out: Out = RUNS / "full",
    page: Annotated[Path, typer.Option(help="folder of the page, its plots and figures")] = RESULTS,
) -> None:
    """Every set in every setting, for hours; ends in one line of JSON and a page with plots."""
    usual = usual_settings(TargetTokenizer(resolve_target(target)))
    plan = Plan(
        evaluation_sets(sets.split(",")),
        settings_named(settings.split(",")) if settings else usual,
        Sizes(prompts, max_tokens, num_draft_tokens=num_draft_tokens),
        sampled_prompts=sampled_prompts,
        timed_prompts=timed_prompts,
    )
    report = _run(plan, _source(target, weights, prefix), threads, out)
    report.save(page / "evaluation.json")
    plots = [
        name
        for setting, figures in report.settings.items()
        for name in write_plots(page, setting, figures)
    ]
    (page / "evaluation.md").write_text(markdown(report, plots), encoding="utf-8")
    typer.echo(json.dumps(report.headline()))


@app.command()
def overlap(sets: Names = _ALL_SETS) -> None:
    """Count training prompts that are, or share 13 words in a row with, evaluation prompts."""
    counts = count_overlap(evaluation_sets(sets.split(",")))
    typer.echo(json.dumps({source: asdict(count) for source, count in counts.items()}))


def _run(plan: Plan, source: StackSource, threads: int, out: Path) -> Report:
    """The report, and its tables on the terminal."""
    console = Console(stderr=True)
    longest = max(plan.sizes.cap(setting) for setting in plan.settings)
    source = replace(source, max_positions=plan.sizes.max_prompt_tokens + longest)
    report = evaluate(load_stack(source, num_threads=threads), plan, out, console)
    for setting in report.settings:
        console.print(report.terminal_table(setting))
    return report


def _source(target: str, weights: Path, prefix: str) -> StackSource:
    correctors = trained_correctors(weights, prefix)
    return StackSource(target, weights / f"{prefix}-dflash", correctors)


def main() -> None:
    """Runs the command line; errors of ours are one line, not a traceback."""
    try:
        app()
    except DcocoError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
