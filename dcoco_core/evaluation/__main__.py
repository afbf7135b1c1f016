"""`python -m dcoco_core.evaluation`: acceptance and speed of every corrector there are weights for.

`quick` asks a few prompts of every set, `full` all of them; both can be stopped and started again.
`overlap` counts training prompts that come close to evaluation prompts, and `scaling` compares
drafters' checkpoints on recorded text.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from dcoco_core.errors import ConfigError, DcocoError
from dcoco_core.evaluation.measure import Sizes
from dcoco_core.evaluation.output import write_report
from dcoco_core.evaluation.report import Report
from dcoco_core.evaluation.scaling import measure_checkpoints, write_scaling
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
from dcoco_core.registry import unknown_name
from dcoco_core.target.folder import DEFAULT_TARGET, resolve_target
from dcoco_core.target.tables import load_tables
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
Correctors = Annotated[
    str | None, typer.Option(help="comma-separated; those there are weights for if not given")
]
Out = Annotated[Path, typer.Option(help="answers and results are kept and found here")]
RUNS, RESULTS = Path("runs/evaluation"), Path("docs/results")
_ALL_SETS = ",".join(SETS)
_WIDTH = 170  # of tables in a log: a column for every corrector


@app.command()
def quick(
    target: Target = DEFAULT_TARGET,
    weights: Weights = WEIGHTS,
    prefix: Prefix = PREFIX,
    sets: Names = _ALL_SETS,
    correctors: Correctors = None,
    prompts_per_set: Annotated[int, typer.Option(help="prompts of each set")] = 6,
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
        Sizes(
            prompts_per_set,
            max_tokens,
            max_prompt_tokens=320,
            num_draft_tokens=num_draft_tokens,
            num_rows=64,
        ),
        sampled_prompts=sampled_prompts,
        sampled_correctors=("none", "dcoco"),
        timed_prompts=timed_prompts,
        timed_tokens=32,
        timed_rows=(),
        checked_prompts=0,
        one_unit=True,
    )
    report = _run(plan, _source(target, weights, prefix, correctors), threads, out)
    write_report(report, out)
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
    correctors: Correctors = None,
    prompts_per_set: Annotated[
        int | None, typer.Option(help="prompts of each set; all by default")
    ] = None,
    sampled_prompts: Annotated[int | None, typer.Option(help="where correctors decode")] = 24,
    sampled_correctors: Annotated[
        str | None, typer.Option(help="those that decode for themselves; all if not given")
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="longest answer without reasoning")] = 256,
    reasoning_tokens: Annotated[int, typer.Option(help="longest answer with reasoning")] = 512,
    timed_prompts: Annotated[int, typer.Option(help="prompts decoded to take times")] = 20,
    checked_prompts: Annotated[int, typer.Option(help="prompts that check the replay")] = 4,
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
        Sizes(prompts_per_set, max_tokens, reasoning_tokens, num_draft_tokens=num_draft_tokens),
        sampled_prompts=sampled_prompts,
        sampled_correctors=sampled_correctors.split(",") if sampled_correctors else None,
        timed_prompts=timed_prompts,
        checked_prompts=checked_prompts,
    )
    report = _run(plan, _source(target, weights, prefix, correctors), threads, out)
    write_report(report, page)
    typer.echo(json.dumps(report.headline()))


@app.command()
def overlap(sets: Names = _ALL_SETS) -> None:
    """Count training prompts that are, or share 13 words in a row with, evaluation prompts."""
    counts = count_overlap(evaluation_sets(sets.split(",")))
    typer.echo(json.dumps({source: asdict(count) for source, count in counts.items()}))


@app.command()
def scaling(
    checkpoints: Annotated[list[Path], typer.Argument(help="folders of drafters, small to large")],
    shards: Annotated[Path, typer.Option(help="folder of `training generate`")],
    amounts: Annotated[
        str | None, typer.Option(help="what each was trained with, comma-separated numbers")
    ] = None,
    unit: Annotated[str, typer.Option(help="what the amounts count")] = "checkpoint",
    target: Target = DEFAULT_TARGET,
    threads: Threads = 2,
    out: Out = RESULTS,
) -> None:
    """Acceptance of uncorrected drafters on held-out text, with a plot; a line of JSON each."""
    torch.set_num_threads(threads)
    numbers = [float(n) for n in amounts.split(",")] if amounts else range(1, len(checkpoints) + 1)
    points = []
    tables = load_tables(resolve_target(target))
    for point in measure_checkpoints(checkpoints, list(numbers), shards, tables):
        points.append(point)
        lengths = {kind: found["acceptance_length"] for kind, found in point.heldout.items()}
        typer.echo(json.dumps({"checkpoint": point.checkpoint, unit: point.amount, **lengths}))
    write_scaling(points, unit, out)


def _run(plan: Plan, source: StackSource, threads: int, out: Path) -> Report:
    """The report, and its tables on the terminal."""
    console = Console(stderr=True, width=None if sys.stderr.isatty() else _WIDTH)
    longest = max(plan.sizes.cap(setting) for setting in plan.settings)
    source = replace(source, max_positions=plan.sizes.max_prompt_tokens + longest)
    report = evaluate(load_stack(source, num_threads=threads), plan, out, console)
    for setting in report.settings:
        console.print(report.terminal_table(setting))
        console.print(report.comparison_table(setting))
    return report


def _source(target: str, weights: Path, prefix: str, names: str | None) -> StackSource:
    """The drafter and the named correctors, or all there are weights for."""
    trained = trained_correctors(weights, prefix)
    chosen = names.split(",") if names else list(trained)
    for name in chosen:
        if name not in trained:
            raise ConfigError(f"in {weights}: {unknown_name('corrector', name, trained)}")
    correctors = {name: trained[name] for name in chosen}
    return StackSource(target, weights / f"{prefix}-dflash", correctors)


def main() -> None:
    """Runs the command line; errors of ours are one line, not a traceback."""
    try:
        app()
    except DcocoError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
