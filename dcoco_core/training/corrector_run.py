"""Sets up a corrector run from a target, a frozen drafter and shards, and reports on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import track

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.trainable import TRAINABLE
from dcoco_core.drafters.catalog import DRAFTERS, PROJECTIONS, DrafterSource
from dcoco_core.drafters.dflash.drafter import DrafterSettings
from dcoco_core.errors import ConfigError
from dcoco_core.protocols import ContextProjection, Drafter
from dcoco_core.target.folder import DEFAULT_TARGET, resolve_target
from dcoco_core.target.interface import TargetModel
from dcoco_core.target.loading import load_target
from dcoco_core.training.blocks import Blocks, concatenate, draft_blocks
from dcoco_core.training.corrector import CorrectorRecipe, CorrectorTrainer
from dcoco_core.training.corrector_eval import with_text
from dcoco_core.training.corrector_report import measure, write_report
from dcoco_core.training.provenance import write_run
from dcoco_core.training.shards import ShardReader

_STOPPING_SHARE = 8
"""One text in this many decides when to stop, and is not trained on."""
_NUM_ROWS = 32


@dataclass(frozen=True, slots=True)
class FrozenDrafter:
    """A drafter checkpoint, its projection, and the most proposals it makes."""

    drafter: Drafter
    projection: ContextProjection
    num_positions: int

    @classmethod
    def load(cls, folder: Path, target: TargetModel, num_positions: int) -> FrozenDrafter:
        """The DFlash drafter in `folder`, for as many texts side by side as blocks are drafted."""
        source = DrafterSource(folder, target)
        settings = DrafterSettings(num_draft_tokens=num_positions, max_slots=_NUM_ROWS)
        return cls(
            DRAFTERS["dflash"](source, settings), PROJECTIONS["dflash"](source), num_positions
        )

    def blocks(self, shards: Path, part: str, cache: Path, stride: int) -> Blocks:
        """Blocks at every `stride`-th token of a part's responses, drafted once and then kept."""
        fingerprint = self.projection.fingerprint
        path = cache / f"{fingerprint}-{part}-{self.num_positions}x{stride}.safetensors"
        if path.exists():
            return Blocks.load(path, fingerprint)
        reader = ShardReader(shards, part)
        if reader.index.target_layer_ids != self.projection.target_layer_ids:
            raise ConfigError(
                f"{shards} holds taps {reader.index.target_layer_ids}, the drafter needs "
                f"{self.projection.target_layer_ids}"
            )
        drafted = draft_blocks(
            self.drafter,
            self.projection,
            track(reader, f"drafting {part}"),
            num_positions=self.num_positions,
            stride=stride,
            num_rows=_NUM_ROWS,
        )
        parts = list(drafted)
        if not parts:
            raise ConfigError(f"part {part!r} of {shards} holds no text")
        blocks = with_text(concatenate(parts))
        blocks.save(path, fingerprint)
        return blocks


def split_for_stopping(blocks: Blocks) -> tuple[Blocks, Blocks]:
    """Training and stopping blocks; a text is on one side as a whole."""
    is_stopping = blocks.sequence_ids % _STOPPING_SHARE == 0
    if not bool(is_stopping.any()) or bool(is_stopping.all()):
        raise ConfigError(f"at least 2 texts are needed, got {len(blocks.sequence_ids.unique())}")
    return blocks[~is_stopping], blocks[is_stopping]


def join_parts(parts: Sequence[Blocks]) -> Blocks:
    """The blocks of several parts; texts of different parts keep different ids."""
    joined, offset = [], 0
    for blocks in parts:
        joined.append(replace(blocks, sequence_ids=blocks.sequence_ids + offset))
        offset += int(blocks.sequence_ids.max()) + 1
    return concatenate(joined)


def corrector_command(
    drafter: Annotated[Path, typer.Option(help="the frozen drafter's checkpoint")],
    shards: Annotated[Path, typer.Option(help="folder from `prepare`")],
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
        str, typer.Option(help="text to learn from; the drafter is over-confident on its own")
    ] = "corrector",
    blocks: Annotated[
        Path, typer.Option(help="where drafted blocks are kept for other runs")
    ] = Path("data/blocks"),
    num_positions: Annotated[int, typer.Option(help="proposals per block")] = 7,
    stride: Annotated[int, typer.Option(help="a block at every so many tokens")] = 1,
    learning_rate: float = CorrectorRecipe.learning_rate,
    weight_decay: float = CorrectorRecipe.weight_decay,
    soft_share: Annotated[
        float, typer.Option(help="share of the loss on the target's probabilities")
    ] = CorrectorRecipe.soft_share,
    dropout: float = 0.1,
    patience: Annotated[int, typer.Option(help="evaluations without a better one")] = 8,
    seed: int = 0,
) -> None:
    """Train a corrector on a frozen drafter's blocks, and measure it on held-out text."""
    recipe = CorrectorRecipe(
        minutes=minutes,
        steps=steps,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        soft_share=soft_share,
        patience=patience,
        seed=seed,
    )
    model = load_target(resolve_target(target))
    frozen = FrozenDrafter.load(drafter, model, num_positions)
    text = join_parts([frozen.blocks(shards, part, blocks, stride) for part in parts.split(",")])
    heldout = frozen.blocks(shards, "heldout", blocks, stride)
    training, stopping = split_for_stopping(text)
    torch.manual_seed(seed)
    corrector = TRAINABLE[name](model.embedding.float(), dropout)
    belonging = Belonging(embedding_fingerprint(model.embedding), frozen.projection.fingerprint)
    trainer = CorrectorTrainer(corrector, training, stopping, recipe, out, belonging)
    write_run(out, asdict(recipe) | {"corrector": name, "dropout": dropout, "parts": parts})
    print(f"{len(training):,} blocks to learn from, {len(stopping):,} to stop by")
    for _ in track(trainer.run(), "training", total=recipe.steps):
        pass
    checkpoint = out / "checkpoint"
    trained = load_corrector(
        name,
        checkpoint,
        embedding=model.embedding,
        drafter_fingerprint=frozen.projection.fingerprint,
    )
    figures = measure(name, trained, heldout)
    facts = {
        "target": model.spec.name,
        "drafter": f"{drafter.name} ({frozen.projection.fingerprint})",
        "parameters": f"{sum(p.numel() for p in corrector.module.parameters()):,}",
        "blocks": f"{len(training):,} of {num_positions} proposals, from part {parts}",
        "steps": f"{trainer.progress.step} in {trainer.progress.elapsed_s / 60:.1f} minutes",
    }
    write_report(out, name, figures, trainer.curve, facts)
    for kind, by_name in figures.items():
        lengths = ", ".join(f"{n} {a.acceptance_length:.3f}" for n, a in by_name.items())
        print(f"{kind}: {lengths}")
