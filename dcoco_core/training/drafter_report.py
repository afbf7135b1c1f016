"""What a drafter run leaves behind: a JSON log, a curve, and a model card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dcoco_core.provenance import commit_id
from dcoco_core.training.drafter import DrafterTrainer


class RunReport:
    """Called with the figures of every evaluation; keeps log.jsonl, curve.png and the card."""

    def __init__(self, folder: Path, trainer: DrafterTrainer) -> None:
        self._folder, self._trainer = folder, trainer
        self._log = folder / "log.jsonl"

    def __call__(self, entry: dict[str, Any]) -> None:
        """Appends an evaluation and rewrites curve and card."""
        with self._log.open("a") as log:
            log.write(json.dumps(entry) + "\n")
        entries = [json.loads(line) for line in self._log.read_text().splitlines()]
        plot_curve(entries, self._folder / "curve.png")
        (self._folder / "checkpoint" / "README.md").write_text(self._card(entry))
        print(json.dumps(entry), flush=True)

    def _card(self, entry: dict[str, Any]) -> str:
        config = self._trainer.model.config
        num_parameters = sum(p.numel() for p in self._trainer.model.parameters())
        rows = [
            f"| {kind} | {figures['num_blocks']} | {figures['acceptance_length']} "
            f"| {_line(figures['acceptance_per_position'])} | {_line(figures['recall_at_16'])} |"
            for kind, figures in entry["heldout"].items()
        ]
        return "\n".join(
            [
                "---",
                "license: apache-2.0",
                "tags: [speculative-decoding, dflash]",
                "---",
                f"# DFlash drafter for {config.target_name}",
                "",
                f"{config.num_layers} layers, {num_parameters / 1e6:.2f} M parameters, blocks of "
                f"{config.block_size}, taps {list(config.target_layer_ids)}, "
                f"{config.draft_vocab_size} of {config.vocab_size} tokens drafted, "
                f"{'the anchor predicts' if config.shift_label else 'same-position'} alignment.",
                "",
                f"Trained for {entry['minutes']} minutes ({entry['step']} steps, "
                f"{entry['epoch']} epochs) by",
                "",
                "```",
                *self._commands(),
                "```",
                "",
                f"at commit {commit_id()}, from answers of the target itself to training prompts.",
                "",
                "Held-out text, teacher-forced; acceptance is joint, acceptance length counts the",
                "token the target adds:",
                "",
                "| text | blocks | acceptance length | accepted per position | recall@16 |",
                "|---|---|---|---|---|",
                *rows,
                "",
            ]
        )

    def _commands(self) -> list[str]:
        """Every command that took part in the run, resumptions included."""
        runs = json.loads((self._folder / "run.json").read_text())
        return list(dict.fromkeys(run["command"] for run in runs))


def _line(values: list[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def plot_curve(entries: list[dict[str, Any]], path: Path) -> None:
    """Held-out acceptance length and training loss over training minutes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    minutes = [entry["minutes"] for entry in entries]
    for kind in entries[-1]["heldout"]:
        lengths = [entry["heldout"][kind]["acceptance_length"] for entry in entries]
        axes.plot(minutes, lengths, marker="o", label=kind)
    axes.set(xlabel="training minutes", ylabel="held-out acceptance length")
    axes.legend(loc="lower right")
    losses = axes.twinx()
    losses.plot(minutes, [entry["loss"] for entry in entries], color="gray", linestyle=":")
    losses.set_ylabel("training loss")
    figure.savefig(path)
