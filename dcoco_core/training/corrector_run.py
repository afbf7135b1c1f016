"""Sets up a corrector run from a target, a frozen drafter and shards, and reports on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.trainable import TrainingSource
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.drafters.catalog import DRAFTERS, PROJECTIONS, DrafterSource
from dcoco_core.drafters.dflash.checkpoint import load_vocab_map
from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.drafter import DrafterSettings
from dcoco_core.errors import ConfigError
from dcoco_core.protocols import ContextProjection, Drafter
from dcoco_core.provenance import write_run
from dcoco_core.target.interface import TargetModel
from dcoco_core.training.blocks import Blocks, concatenate, draft_blocks
from dcoco_core.training.corrector import CorrectorRecipe, CorrectorTrainer
from dcoco_core.training.corrector_eval import with_text
from dcoco_core.training.corrector_report import Figures, measure, write_report
from dcoco_core.training.packed_blocks import PackedDrafter
from dcoco_core.training.processes import OneProcess, Processes
from dcoco_core.training.progress import ProgressDisplay, shown
from dcoco_core.training.shards import ShardReader

_STOPPING_SHARE = 8
"""One text in this many decides when to stop, and is not trained on."""
_HELDOUT_STRIDE = 2
_NUM_ROWS, _MAX_POSITIONS = 32, 2048
_USUAL_CANDIDATES = 16
"""Fewer are cut from blocks with this many; more need blocks of their own."""


@dataclass(frozen=True, slots=True)
class FrozenDrafter:
    """A drafter checkpoint, its projection, vocabulary (target ids, None for all), alignment."""

    drafter: Drafter | PackedDrafter
    projection: ContextProjection
    vocab_ids: torch.Tensor | None
    shift_label: bool

    @classmethod
    def load(cls, run: CorrectorRun, target: TargetModel) -> FrozenDrafter:
        """The DFlash drafter of `run`, for its longest blocks.

        On a CPU it is the one that serves, elsewhere one that drafts in packed passes.
        """
        source = DrafterSource(run.drafter, target)
        settings = DrafterSettings(
            num_draft_tokens=max(run.num_positions),
            num_candidates=max(run.num_candidates, _USUAL_CANDIDATES),
            max_slots=_NUM_ROWS,
            max_positions=min(_MAX_POSITIONS, target.spec.max_positions),
        )
        config = DFlashConfig.load(run.drafter)
        projection = PROJECTIONS["dflash"](source)
        drafter: Drafter | PackedDrafter
        if target.embedding.device.type == "cpu":
            drafter = DRAFTERS["dflash"](source, settings)
        else:
            drafter = PackedDrafter(run.drafter, target, projection, settings)
        return cls(
            drafter,
            projection,
            load_vocab_map(run.drafter, config),
            config.shift_label,
        )

    def blocks(self, run: CorrectorRun, part: str, num_positions: int) -> Blocks:
        """Blocks along a part's responses, drafted once and then kept."""
        stride = _HELDOUT_STRIDE if part == "heldout" else run.stride
        fingerprint = self.projection.fingerprint
        more = f"-top{run.num_candidates}" if run.num_candidates > _USUAL_CANDIDATES else ""
        path = run.blocks / f"{fingerprint}-{part}-{num_positions}x{stride}{more}.safetensors"
        if path.exists():
            return Blocks.load(path, fingerprint).best(run.num_candidates)
        reader = ShardReader(run.shards, part)
        if reader.index.target_layer_ids != self.projection.target_layer_ids:
            raise ConfigError(
                f"{run.shards} holds taps {reader.index.target_layer_ids}, the drafter needs "
                f"{self.projection.target_layer_ids}"
            )
        label = f"drafting {part}, {num_positions} proposals"
        texts = shown(reader, label, len(reader), "texts")
        if isinstance(self.drafter, PackedDrafter):
            drafted = self.drafter.blocks(texts, num_positions, stride)
        else:
            drafted = draft_blocks(
                self.drafter,
                self.projection,
                texts,
                num_positions=num_positions,
                stride=stride,
                num_rows=_NUM_ROWS,
            )
        parts = list(drafted)
        if not parts:
            raise ConfigError(f"part {part!r} of {run.shards} holds no text")
        blocks = with_text(concatenate(parts))
        blocks.save(path, fingerprint)
        return blocks.best(run.num_candidates)

    def text(self, run: CorrectorRun) -> tuple[Blocks, Blocks]:
        """What to train on and what to stop by; a slice of the first part does the latter."""
        training, stopping = [], []
        for length in run.num_positions:
            first, *others = (self.blocks(run, part, length) for part in run.parts)
            kept, sliced = split_for_stopping(first)
            training.append(join_parts([kept, *others]))
            stopping.append(sliced)
        return join_lengths(training), join_lengths(stopping)


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


def train_shown(trainer: CorrectorTrainer, is_shown: bool) -> None:
    """Runs the trainer to its end, with a display of the spent part of its budget."""
    recipe, progress = trainer.recipe, trainer.progress
    with ProgressDisplay("training", 1.0, "", is_shown=is_shown) as display:
        display.update(recipe.spent(progress))
        first_step, before_s = progress.step, progress.elapsed_s
        for loss in trainer.run():
            rate = (progress.step - first_step) / max(1e-6, progress.elapsed_s - before_s)
            note = f"step {progress.step}, {rate:,.1f} steps a second, loss {loss:.3f}"
            display.update(recipe.spent(progress), note)


def join_lengths(parts: Sequence[Blocks]) -> Blocks:
    """Blocks of several lengths over the same texts, all padded to the longest."""
    longest = max(blocks.num_positions for blocks in parts)
    return concatenate([blocks.padded(longest) for blocks in parts])


@dataclass(frozen=True, slots=True)
class CorrectorRun:
    """What a run is made of. Drafted blocks are kept in `blocks` for other runs.

    `parts` are parts of the shards, the first one unseen by the drafter: it also says when to
    stop. Text that the drafter was trained on shows it over-confident, and still helps: variety
    is what a small text lacks most. `design` sets fields of the corrector's config.
    """

    name: str
    drafter: Path
    shards: Path
    blocks: Path
    out: Path
    parts: tuple[str, ...] = ("corrector", "drafter")
    num_positions: tuple[int, ...] = (4, 7)
    stride: int = 4
    dropout: float = 0.1
    num_candidates: int = _USUAL_CANDIDATES
    design: Mapping[str, str] = field(default_factory=dict)


def run_corrector(
    run: CorrectorRun,
    target: TargetModel,
    recipe: CorrectorRecipe,
    processes: Processes | None = None,
) -> Figures:
    """Drafts the blocks, trains (or goes on), measures on held-out text, and writes the report.

    In several processes the main one drafts, measures and writes, and the others return nothing.

    Args:
        run: what to train, and on what.
        target: on the device of `processes`.
        recipe: how to train.
        processes: where to compute, and beside whom; one process on the CPU by default.

    Raises:
        ConfigError: shards or options that do not fit.
        CheckpointError: a drafter made for another target, or damaged files.
    """
    processes = processes or OneProcess()
    is_main = processes.rank == 0
    frozen = FrozenDrafter.load(run, target)
    with processes.main_first():
        training, stopping = frozen.text(run)
        heldout = {length: frozen.blocks(run, "heldout", length) for length in run.num_positions}
    torch.manual_seed(recipe.seed)
    source = TrainingSource(
        embedding=target.embedding.float(),
        lm_head=target.lm_head.float(),
        vocab_ids=frozen.vocab_ids,
        num_candidates=run.num_candidates,
        max_positions=max(run.num_positions),
        shift_label=frozen.shift_label,
        dropout=run.dropout,
        design=run.design,
    )
    corrector = TRAINABLE[run.name](source)
    fingerprint = frozen.projection.fingerprint
    belonging = Belonging(embedding_fingerprint(target.embedding), fingerprint)
    trainer = CorrectorTrainer(corrector, training, stopping, recipe, run.out, belonging, processes)
    if is_main:
        where = {"device": str(processes.device), "num_processes": processes.count}
        write_run(run.out, asdict(run) | asdict(recipe) | where)
        print(f"{len(training):,} blocks to learn from, {len(stopping):,} to stop by")
    if processes.count > 1:
        torch.manual_seed(recipe.seed + 1 + processes.rank)  # no two drop the same units
    train_shown(trainer, is_shown=is_main)
    if not is_main:
        return {}
    trained = load_corrector(
        run.name,
        run.out / "checkpoint",
        embedding=target.embedding,
        drafter_fingerprint=fingerprint,
    )
    figures = measure(run.name, trained, heldout)
    progress, lengths = trainer.progress, " and ".join(map(str, run.num_positions))
    facts = {
        "target": target.spec.name,
        "drafter": f"{run.drafter} (fingerprint {fingerprint})",
        "parameters": f"{sum(p.numel() for p in corrector.module.parameters()):,}",
        "design": ", ".join(f"{k} {v}" for k, v in run.design.items()) or "default",
        "blocks": f"{len(training):,} of {lengths} proposals, from part {', '.join(run.parts)}",
        "steps": f"{progress.step} in {progress.elapsed_s / 60:.1f} minutes",
    }
    write_report(run.out, run.name, figures, trainer.curve, facts)
    return figures
