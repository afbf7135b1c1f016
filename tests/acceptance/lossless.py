"""`make test-lossless`: 40 prompts x 96 tokens, every combination, resumable.

Each finished combination is kept in runs/lossless.json; running again goes on after the last one.
Ends with one line of JSON; exit status 1 when any text differs for another reason than a near-tie.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from dcoco_core.evaluation.stack import StackSource, load_stack, trained_correctors
from dcoco_core.prompts import own_prompts
from dcoco_core.provenance import describe_run
from dcoco_core.target.linear import Numerics
from tests.equality import compare, plain_texts, requests

NUMERICS: tuple[Numerics, ...] = ("fast", "exact")
COMBINATIONS = list(product(trained_correctors(), (1, 4, 8, 16), (1, 8)))


def main(
    prompts: Annotated[int, typer.Option(help="Held-out prompts.")] = 40,
    tokens: Annotated[int, typer.Option(help="Tokens per prompt.")] = 96,
    out: Annotated[Path, typer.Option(help="Progress and result.")] = Path("runs/lossless.json"),
) -> None:
    """Compares speculative with plain text; see the module."""
    setting = {"prompts": prompts, "tokens": tokens}
    record = json.loads(out.read_text()) if out.exists() else {}
    if record.get("setting") != setting:
        record = {"setting": setting, "run": describe_run(), "done": {}}
    console = Console(stderr=True)
    for numerics in NUMERICS:
        names = {
            f"{numerics} {corrector} block {block_size} batch {num_slots}": (
                corrector,
                block_size,
                num_slots,
            )
            for corrector, block_size, num_slots in COMBINATIONS
        }
        todo = [name for name in names if name not in record["done"]]
        if not todo:
            continue
        stack = load_stack(StackSource(correctors=trained_correctors()), numerics=numerics)
        wanted = requests(stack, own_prompts(evaluation=True)[:prompts], tokens)
        reference = plain_texts(stack, wanted)
        for name in track(todo, f"{numerics} numerics", console=console):
            corrector, block_size, num_slots = names[name]
            outcome = compare(
                stack,
                wanted,
                reference,
                corrector=corrector,
                block_size=block_size,
                num_slots=num_slots,
            )
            ties_fail = outcome.near_ties if numerics == "exact" else ()
            record["done"][name] = {
                "texts": outcome.num_texts,
                "near_ties": list(outcome.near_ties),
                "failures": [*outcome.failures, *ties_fail],
            }
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(record, indent=1))
    results = record["done"].values()
    failures = [failure for result in results for failure in result["failures"]]
    summary = {
        "ok": not failures,
        "texts": sum(result["texts"] for result in results),
        "near_ties": sum(len(result["near_ties"]) for result in results),
        "failures": failures,
    }
    typer.echo(json.dumps(summary))
    raise typer.Exit(code=1 if failures else 0)


if __name__ == "__main__":
    typer.run(main)
