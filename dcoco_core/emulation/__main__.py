"""`python -m dcoco_core.emulation`: fits profiles to published figures, says what they allow."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dcoco_core.emulation.acceptance import PUBLISHED, load_acceptance
from dcoco_core.emulation.bound import best_plan
from dcoco_core.emulation.breakeven import (
    PUBLISHED_LEADS,
    PUBLISHED_SPEEDUP,
    break_even,
    sequential_correctors,
    speedup,
)
from dcoco_core.emulation.fit import DRAFT_SHARES, fit_published, profile_of
from dcoco_core.emulation.profile import PROFILES, Loop, dump_profile, find_profile, load_profile
from dcoco_core.errors import DcocoError

_MADE_BY = "Written by `python -m dcoco_core.emulation fit`; change the fit, not this file."

_ProfileName = Annotated[str, typer.Option(help="name of a profile in the folder, or a file")]
_AcceptanceName = Annotated[str, typer.Option(help="'published', or a file of recorded counts")]
_Clients = Annotated[str, typer.Option(help="comma-separated")]

app = typer.Typer(help="Profiles of emulated accelerators.", no_args_is_help=True)


@app.command()
def fit(
    out: Annotated[Path, typer.Option(help="folder of the profiles")] = PROFILES,
) -> None:
    """Fit b200-qwen3-8b for every assumed draft share, print fit and error, write the profiles."""
    out.mkdir(parents=True, exist_ok=True)
    for share in DRAFT_SHARES:
        fitted = fit_published(share)
        profile = profile_of(fitted)
        path = out / f"{profile.name}.yaml"
        path.write_text(dump_profile(profile, _MADE_BY))
        typer.echo(f"{path}: draft share {share:.2f} (assumed)")
        for stage, cost in (("verifier", fitted.verifier), ("drafter", fitted.drafter)):
            typer.echo(
                f"  {stage:8} {cost.fixed_s * 1e3:.3f} ms + {cost.row_s * 1e3:.4f} ms * rows "
                f"+ {cost.token_s * 1e3:.4f} ms * tokens"
            )
        typer.echo("  clients  proposals  published ms  fitted ms   error")
        for row in fitted.rounds:
            typer.echo(
                f"  {row.num_clients:7}  {row.num_draft_tokens:9}  {row.published_ms:12.3f}"
                f"  {row.fitted_ms:9.3f}  {row.error:+6.1%}"
            )
        typer.echo(f"  error: worst {fitted.worst_error:.1%}, mean {fitted.mean_error:.1%}")


@app.command()
def bound(
    profile: _ProfileName = "b200-qwen3-8b",
    acceptance: _AcceptanceName = PUBLISHED,
    corrector: Annotated[str, typer.Option(help="whose acceptance and cost")] = "dcoco",
    loop: Annotated[
        Loop | None, typer.Option(help="how it goes over a block; by default its best loop")
    ] = None,
    clients: _Clients = "1,4,8,16,32,64,128",
) -> None:
    """Print the best plan at every load, from the profile alone: emulated, not measured."""
    modelled, source = load_profile(find_profile(profile)), load_acceptance(acceptance)
    loads = _loads(clients)
    best = [best_plan(modelled, source, num_clients, corrector, loop) for num_clients in loads]
    typer.echo(f"{modelled.name}, {corrector}: modelled, not measured")
    typer.echo(f"  acceptance ({source.label}): {source.origins[corrector]}")
    cost = modelled.corrector(corrector, loop)
    typer.echo(f"  cost of the corrector ({cost.source}): {cost.note}")
    typer.echo("  clients  proposals  groups  tokens/s  / plain")
    for num_clients, row in zip(loads, best, strict=True):
        typer.echo(
            f"  {num_clients:7}  {row.plan.num_draft_tokens:9}  {row.plan.num_groups:6}"
            f"  {row.tokens_per_s:8.0f}  {row.tokens_per_s / row.plain_tokens_per_s:7.2f}"
        )


@app.command()
def breakeven(
    profile: _ProfileName = "b200-qwen3-8b",
    acceptance: _AcceptanceName = PUBLISHED,
    clients: _Clients = "1,4,8,16,32",
) -> None:
    """At which cost per step DCOCO leads, and a sequential corrector loses to no correction.

    Full blocks in one group; arithmetic on the profile, not measured. Ends in a line of JSON.
    """
    modelled, source = load_profile(find_profile(profile)), load_acceptance(acceptance)
    loads = _loads(clients)
    names = [name for name in sequential_correctors(modelled) if name in source.rates]
    rows = [break_even(modelled, source, name, load) for name in names for load in loads]
    speedups = [speedup(modelled, source, load) for load in loads]
    leads = "".join(f"{f'leads by {lead:g}':>16}" for lead in PUBLISHED_LEADS)
    typer.echo(f"{modelled.name}, acceptance {source.label}: modelled, not measured")
    typer.echo(f"  acceptance of dcoco: {source.origins['dcoco']}")
    typer.echo("  cost per step, microseconds, at which dcoco ... or none is faster")
    typer.echo(f"  corrector  clients{leads}  none is faster  what the profile's loops cost")
    for row in rows:
        costs = "".join(f"{us:16.1f}" for us in row.step_us_by_lead.values())
        loops = ", ".join(
            f"{name} {loop.step_us:.1f} (dcoco leads by {loop.lead:.3f}, "
            f"{loop.over_uncorrected:.3f} of none)"
            for name, loop in row.loops.items()
        )
        typer.echo(
            f"  {row.corrector:9}  {row.num_clients:7}{costs}  "
            f"{row.step_us_below_uncorrected:14.1f}  {loops}"
        )
    typer.echo(f"  clients  dcoco/plain  acceptance length  needed for {PUBLISHED_SPEEDUP:g}")
    for speed in speedups:
        typer.echo(
            f"  {speed.num_clients:7}  {speed.over_plain:11.2f}  {speed.acceptance_length:17.2f}"
            f"  {speed.needed_acceptance_length:14.2f}"
        )
    report = {
        "profile": modelled.name,
        "acceptance": source.label,
        "modelled": True,
        "break_even": [asdict(row) for row in rows],
        "speedup": [asdict(row) for row in speedups],
    }
    typer.echo(json.dumps(report))


def _loads(clients: str) -> list[int]:
    try:
        loads = [int(item) for item in clients.split(",")]
    except ValueError:
        loads = []
    if not loads or min(loads) < 1:
        raise typer.BadParameter("a comma-separated list of numbers of at least 1 is expected")
    return loads


def main() -> None:
    """Runs the command; an error of ours is one line."""
    try:
        app()
    except DcocoError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
