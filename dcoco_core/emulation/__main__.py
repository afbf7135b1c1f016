"""`python -m dcoco_core.emulation`: fits profiles to published figures, says what they allow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dcoco_core.emulation.acceptance import load_acceptance
from dcoco_core.emulation.bound import best_plan
from dcoco_core.emulation.fit import DRAFT_SHARES, fit_published, profile_of
from dcoco_core.emulation.profile import PROFILES, Loop, dump_profile, find_profile, load_profile
from dcoco_core.errors import DcocoError

_MADE_BY = "Written by `python -m dcoco_core.emulation fit`; change the fit, not this file."

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
    profile: Annotated[str, typer.Option(help="name of a profile in the folder, or a file")] = (
        "b200-qwen3-8b"
    ),
    acceptance: Annotated[
        str, typer.Option(help="'published', or a file of recorded counts")
    ] = "published",
    corrector: Annotated[str, typer.Option(help="whose acceptance and cost")] = "dcoco",
    loop: Annotated[
        Loop | None, typer.Option(help="how it goes over a block; by default its best loop")
    ] = None,
    clients: Annotated[str, typer.Option(help="comma-separated")] = "1,4,8,16,32,64,128",
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
