"""What a corrector run leaves behind: held-out figures, a curve, and a model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dcoco_core.correctors.none import NoneCorrector
from dcoco_core.protocols import Corrector
from dcoco_core.provenance import command_line, commit_id
from dcoco_core.training.blocks import Blocks
from dcoco_core.training.corrector_eval import (
    Acceptance,
    accepted_greedily,
    kinds_of_text,
    oracle,
)

Figures = dict[str, dict[str, Acceptance]]
"""Kind of text and length of block to "none", the corrector's name and "oracle"."""


def measure(name: str, corrector: Corrector, heldout: Mapping[int, Blocks]) -> Figures:
    """Acceptance on held-out blocks, beside that of no correction and of perfect correction.

    Args:
        name: the corrector's.
        corrector: with its trained weights.
        heldout: blocks by their number of proposals.
    """
    return {
        f"{kind}, {length} proposals": {
            "none": accepted_greedily(NoneCorrector(), blocks),
            name: accepted_greedily(corrector, blocks),
            "oracle": oracle(blocks),
        }
        for length, blocks_of_length in heldout.items()
        for kind, blocks in kinds_of_text(blocks_of_length).items()
    }


def write_report(
    folder: Path, name: str, figures: Figures, curve: list[dict[str, Any]], facts: dict[str, str]
) -> None:
    """Writes report.json and curve.png to `folder`, and the card beside the checkpoint.

    Args:
        folder: the run's.
        name: the corrector.
        figures: of `measure`.
        curve: the trainer's evaluations.
        facts: what the card says about target, drafter, text and sizes.
    """
    report = {
        "corrector": name,
        "facts": facts,
        "heldout": {k: {n: asdict(a) for n, a in row.items()} for k, row in figures.items()},
    }
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    _plot(curve, folder / "curve.png")
    (folder / "checkpoint" / "README.md").write_text(_card(name, figures, facts))


def _card(name: str, figures: Figures, facts: dict[str, str]) -> str:
    rows = []
    for kind, by_name in figures.items():
        base = by_name["none"].acceptance_length
        for corrector, acceptance in by_name.items():
            ratio = acceptance.acceptance_length / base
            shares = " ".join(f"{share:.2f}" for share in acceptance.per_position)
            rows.append(
                f"| {kind} | {corrector} | {acceptance.num_blocks} | "
                f"{acceptance.acceptance_length:.3f} | {ratio:.3f} | {shares} |"
            )
    return "\n".join(
        [
            "---",
            "license: apache-2.0",
            f"tags: [speculative-decoding, {name}]",
            "---",
            f"# {name} corrector for {facts['target']}",
            "",
            *(f"- {key}: {value}" for key, value in facts.items()),
            "",
            "Trained by",
            "",
            "```",
            command_line(),
            "```",
            "",
            f"at commit {commit_id()}.",
            "",
            "Held-out text, greedy drafts at every second token, teacher-forced. Acceptance is",
            "joint, acceptance length counts the token the target adds. `none` is the drafter's",
            "first candidate, `oracle` always finds the right one:",
            "",
            "| text | corrector | blocks | acceptance length | / none | accepted per position |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _plot(curve: list[dict[str, Any]], path: Path) -> None:
    """Acceptance length on the stopping texts and training loss over training minutes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    minutes = [entry["minutes"] for entry in curve]
    for measure_of in ("acceptance_length", "expected_length"):
        lengths = [entry[measure_of] for entry in curve]
        axes.plot(minutes, lengths, marker="o", label=measure_of.replace("_", " "))
    axes.legend(loc="lower right")
    axes.set(xlabel="training minutes", ylabel="stopping texts")
    losses = axes.twinx()
    losses.plot(minutes, [entry["loss"] for entry in curve], color="gray", linestyle=":")
    losses.set_ylabel("training loss")
    figure.savefig(path)
