"""How acceptance grows with training: several drafters, uncorrected, on the same held-out text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure

from dcoco_core.drafters.dflash.checkpoint import check_target, load_model, load_vocab_map
from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.errors import ConfigError
from dcoco_core.provenance import describe_run
from dcoco_core.target.interface import TargetTables
from dcoco_core.training.drafter_eval import evaluate
from dcoco_core.training.shards import ShardReader


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """One checkpoint.

    Attributes:
        checkpoint: its folder.
        amount: what it had of whatever the curve is drawn over, text or steps.
        heldout: acceptance length, acceptance and recall per position, by kind of text.
    """

    checkpoint: str
    amount: float
    heldout: dict[str, dict[str, object]]


def measure_checkpoints(
    checkpoints: Sequence[Path], amounts: Sequence[float], shards: Path, target: TargetTables
) -> Iterator[ScalingPoint]:
    """Teacher-forced figures of every checkpoint on the shards' held-out part, in order.

    Raises:
        ConfigError: the numbers do not match the checkpoints, or there is no held-out text.
        CheckpointError: a checkpoint is damaged or was made for another target.
    """
    if len(amounts) != len(checkpoints):
        raise ConfigError(f"{len(amounts)} amounts for {len(checkpoints)} checkpoints")
    reader = ShardReader(shards, "heldout")
    if not len(reader):
        raise ConfigError(f"{shards} holds no held-out text; generate more")
    for folder, amount in zip(checkpoints, amounts, strict=True):
        config = DFlashConfig.load(folder)
        check_target(config, target)
        if config.target_layer_ids != reader.index.target_layer_ids:
            raise ConfigError(
                f"{folder} taps blocks {config.target_layer_ids}, {shards} has those of "
                f"{reader.index.target_layer_ids}"
            )
        model = load_model(folder, config, target.spec.hidden_size, torch.float32)
        ids = load_vocab_map(folder, config)
        if ids is None:
            ids = torch.arange(config.vocab_size)
        heldout = evaluate(model, reader, target.embedding, target.lm_head[ids], ids)
        yield ScalingPoint(str(folder), amount, heldout)


def write_scaling(points: Sequence[ScalingPoint], unit: str, folder: Path) -> None:
    """Writes scaling.json and scaling.png.

    Args:
        points: at least one.
        unit: what the amounts count.
        folder: made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = {**describe_run(), "unit": unit, "points": [asdict(point) for point in points]}
    (folder / "scaling.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    plot = Figure((6.5, 4), layout="constrained")
    title = "Acceptance length without a corrector, held-out text"
    axes = plot.add_subplot(title=title, xlabel=unit)
    ordered = sorted(points, key=lambda point: point.amount)
    for kind in ordered[0].heldout:
        known = [point for point in ordered if kind in point.heldout]
        axes.plot(
            [point.amount for point in known],
            [float(str(point.heldout[kind]["acceptance_length"])) for point in known],
            marker="o",
            label=kind.replace("_", " "),
        )
    if ordered[0].amount > 0 and ordered[-1].amount > 8 * ordered[0].amount:
        axes.set_xscale("log")
    axes.legend(fontsize="small")
    plot.savefig(folder / "scaling.png", dpi=110)
