"""The command `corrector` of `python -m dcoco_core.training`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dcoco_core.target.folder import DEFAULT_TARGET, resolve_target


def corrector_command(  # noqa: PLR0913 - an option of a command is a parameter
    drafter: Annotated[Path, typer.Option(help="the frozen drafter's checkpoint")],
    shards: Annotated[Path, typer.Option(help="folder from `generate`")],
    out: Annotated[Path, typer.Option(help="the run's folder; an unfinished run there goes on")],
    name: Annotated[str, typer.Option(help="which corrector")] = "dcoco",
    target: Annotated[
        str, typer.Option(help="target: folder, GGUF file, hub id or packaged name")
    ] = DEFAULT_TARGET,
    minutes: Annotated[
        float | None, typer.Option(help="training time, resumptions included")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="instead of --minutes")] = None,
    parts: Annotated[
        str, typer.Option(help="text to learn from; the first part, unseen by the drafter, stops")
    ] = "corrector,drafter",
    blocks: Annotated[
        Path, typer.Option(help="where drafted blocks are kept for other runs")
    ] = Path("data/blocks"),
    num_positions: Annotated[
        str, typer.Option(help="proposals per block, one or several lengths")
    ] = "4,7",
    stride: Annotated[int, typer.Option(help="a block at every so many tokens")] = 4,
    learning_rate: float = 2e-3,
    weight_decay: float = 0.05,
    soft_share: Annotated[
        float, typer.Option(help="share of the loss on the target's probabilities")
    ] = 1.0,
    hinge_weight: Annotated[
        float, typer.Option(help="of a hinge with margin 2 on the recorded token's lead")
    ] = 0.0,
    dropout: float = 0.1,
    num_candidates: Annotated[int, typer.Option(help="candidates per position")] = 16,
    design: Annotated[
        list[str] | None, typer.Option(help="field=value of the corrector's config; repeatable")
    ] = None,
    patience: Annotated[int, typer.Option(help="evaluations without a better one")] = 8,
    seed: int = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
) -> None:
    """Train a corrector on a frozen drafter's blocks, and measure it on held-out text.

    Under `accelerate launch` every process takes its own batches: a step learns from as many.
    """
    from dcoco_core.correctors.options import parse_design
    from dcoco_core.target.loading import load_target
    from dcoco_core.training.corrector import CorrectorRecipe
    from dcoco_core.training.corrector_run import CorrectorRun, run_corrector
    from dcoco_core.training.processes import start_processes

    recipe = CorrectorRecipe(
        minutes=minutes,
        steps=steps,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        soft_share=soft_share,
        hinge_weight=hinge_weight,
        patience=patience,
        seed=seed,
    )
    run = CorrectorRun(
        name=name,
        drafter=drafter,
        shards=shards,
        blocks=blocks,
        out=out,
        parts=tuple(parts.split(",")),
        num_positions=tuple(int(length) for length in num_positions.split(",")),
        stride=stride,
        dropout=dropout,
        num_candidates=num_candidates,
        design=parse_design(design or []),
    )
    with start_processes(device) as processes:
        model = load_target(resolve_target(target), device=str(processes.device))
        figures = run_corrector(run, model, recipe, processes)
    for kind, by_name in figures.items():
        lengths = ", ".join(f"{n} {a.acceptance_length:.3f}" for n, a in by_name.items())
        print(f"{kind}: {lengths}")
