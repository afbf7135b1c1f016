"""Trains a DFlash drafter from recorded shards.

Published recipe (DFlash, appendix A.1): frozen target, embedding and head; anchors redrawn every
epoch; weights decaying over a block; AdamW, clipping at 1, cosine schedule with warm-up. Ours
differs where a small text and a CPU ask for it: targets are the target's recorded distributions,
blocks of several lengths are trained, and an average of the weights is what ships.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from dcoco_core.drafters.dflash.checkpoint import save_checkpoint
from dcoco_core.drafters.dflash.model import DFlashModel
from dcoco_core.training.drafter_batch import (
    BlockBatch,
    batch_generator,
    build_batch,
    draw_anchors,
    epoch_batches,
)
from dcoco_core.training.drafter_eval import evaluate, run_blocks
from dcoco_core.training.drafter_loss import head_cross_entropy, soft_targets
from dcoco_core.training.processes import OneProcess, Processes, share_of
from dcoco_core.training.schedule import Schedule
from dcoco_core.training.shards import ShardReader
from dcoco_core.training.state import Ema, Progress, load_state, save_state


@dataclass(frozen=True, slots=True)
class Recipe(Schedule):
    """How to train.

    `block_lengths` are proposals per block; one is drawn per step, so that the drafter knows every
    length it will be asked for (its block rows see each other, so the length matters).
    """

    final_learning_rate: float = 0.02
    weight_decay: float = 0.05
    gamma: float = 4.0
    block_lengths: tuple[int, ...] = (4, 4, 7)
    sequences_per_step: int = 4
    anchors_per_sequence: int = 32
    target_temperature: float = 0.8
    label_share: float = 0.3
    copy_weight: float = 0.1
    ema_decay: float = 0.995
    seed: int = 0
    autocast: bool = True
    evaluate_every_s: float = 240.0


@dataclass(frozen=True, slots=True)
class FrozenTarget:
    """What a drafter borrows: embedding [V, H], head rows of the draft vocabulary and its ids."""

    embedding: torch.Tensor
    head: torch.Tensor  # [draft_vocab_size, H]
    vocab_ids: torch.Tensor  # [draft_vocab_size]

    def draft_ids(self) -> torch.Tensor:
        """[V] the draft id of every target id, -1 where it has none."""
        ids = self.vocab_ids.new_full((self.embedding.shape[0],), -1)
        ids[self.vocab_ids] = torch.arange(len(self.vocab_ids), device=ids.device)
        return ids

    def to(self, device: torch.device) -> FrozenTarget:
        """The same on `device`."""
        return FrozenTarget(
            self.embedding.to(device), self.head.to(device), self.vocab_ids.to(device)
        )


class DrafterTrainer:
    """One run: owns the network, its optimizer and its folder.

    Args:
        model: the network, the same in all processes; it is moved to the run's device.
        target: what it borrows.
        reader: the text to learn from.
        recipe: how. A batch is that of one process.
        folder: the run's; a state found there is gone on with.
        processes: where to compute, and beside whom.
    """

    def __init__(
        self,
        model: DFlashModel,
        target: FrozenTarget,
        reader: ShardReader,
        recipe: Recipe,
        folder: Path,
        processes: Processes | None = None,
    ) -> None:
        self.processes = processes or OneProcess()
        self.model, self.recipe = model.to(self.processes.device), recipe
        self._target, self._reader, self._folder = target.to(self._device), reader, folder
        self._draft_ids = self._target.draft_ids()
        matrices = [p for p in model.parameters() if p.ndim > 1]
        vectors = [p for p in model.parameters() if p.ndim == 1]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": recipe.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=recipe.learning_rate,
            betas=(0.9, 0.98),
            fused=True,
        )
        self.ema = Ema(model, recipe.ema_decay)
        self.progress = Progress()
        self.num_tokens = 0
        """Tokens of text that all processes have read since this trainer was made."""
        if (folder / "state.safetensors").exists():
            self.progress = load_state(
                folder, model, self._optimizer, self.ema, self.processes.count
            )

    @property
    def _device(self) -> torch.device:
        return self.processes.device

    def run(self) -> Iterator[float]:
        """Trains until the budget is spent; yields the loss of every step."""
        while self.recipe.spent(self.progress) < 1:
            batches = epoch_batches(
                self._reader, self.recipe.sequences_per_step, self.recipe.seed, self.progress.epoch
            )
            batches = share_of(batches, self.processes)
            while self.progress.batch < len(batches):
                if self.recipe.spent(self.progress) >= 1:
                    return
                began = time.monotonic()
                loss = self._step(self._batch(batches[self.progress.batch]))
                self.progress.step += 1
                self.progress.batch += 1
                elapsed_s = self.progress.elapsed_s + time.monotonic() - began
                # One clock for all processes, so that they end, and evaluate, at the same step.
                self.progress.elapsed_s = self.processes.agree(elapsed_s)
                yield loss
            self.progress.epoch += 1
            self.progress.batch = 0

    def _batch(self, numbers: list[int]) -> BlockBatch:
        recipe, progress = self.recipe, self.progress
        place = progress.batch * self.processes.count + self.processes.rank
        generator = batch_generator(recipe.seed, progress.epoch, place + 1)
        choice = int(torch.randint(len(recipe.block_lengths), (1,), generator=generator))
        length = recipe.block_lengths[choice]
        sequences = [self._reader[number] for number in numbers]
        anchors = [draw_anchors(s, recipe.anchors_per_sequence, generator) for s in sequences]
        self.num_tokens += self.processes.count * sum(s.info.num_tokens for s in sequences)
        num_rows = self.model.config.num_inputs(length)
        batch = build_batch(sequences, anchors, self.model.config, num_rows, recipe.gamma)
        return batch.to(self._device)

    def _step(self, batch: BlockBatch) -> float:
        recipe = self.recipe
        for group in self._optimizer.param_groups:
            group["lr"] = recipe.learning_rate_at(recipe.spent(self.progress))
        ids, probs = soft_targets(
            batch, self._draft_ids, recipe.target_temperature, recipe.label_share
        )
        weights = (batch.weights / batch.weights.sum()).flatten()
        asked = weights > 0
        with torch.autocast(self._device.type, torch.bfloat16, enabled=recipe.autocast):
            states, attend = run_blocks(self.model, batch, self._target.embedding)
            hidden = states.flatten(0, 2)[asked]
        loss, _ = head_cross_entropy(
            hidden.to(self._target.head.dtype),
            self._target.head,
            ids[asked],
            probs[asked],
            weights[asked],
        )
        self._optimizer.zero_grad(set_to_none=True)
        (loss + recipe.copy_weight * attend.loss()).backward()
        mean_loss = self.processes.average(loss, self.model.parameters())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self.ema.update()
        return float(mean_loss)

    def save(self) -> None:
        """Writes the run's state and the averaged network as a published checkpoint."""
        save_state(
            *(self._folder, self.model, self._optimizer, self.ema, self.progress),
            num_processes=self.processes.count,
        )
        vocab_ids = self._target.vocab_ids.cpu()
        save_checkpoint(self._folder / "checkpoint", self.model.config, self.ema.tensors, vocab_ids)

    def evaluate(self, reader: ShardReader) -> dict[str, dict[str, object]]:
        """Held-out figures of the averaged network."""
        with torch.device("meta"):
            averaged = DFlashModel(self.model.config, reader.index.hidden_size)
        dtype = torch.bfloat16 if self.recipe.autocast else torch.float32
        averaged.load_state_dict({n: t.to(dtype) for n, t in self.ema.tensors.items()}, assign=True)
        target = self._target
        return evaluate(averaged, reader, target.embedding, target.head, target.vocab_ids)


def train(
    trainer: DrafterTrainer,
    heldout: ShardReader,
    report: Callable[[dict[str, object]], None],
) -> Iterator[tuple[float, float]]:
    """Runs to the end of the budget, saving and reporting every few minutes and at the end.

    Only the main process saves and reports; the others wait for it at their next step.

    Yields the spent part of the budget and the loss after every step.
    """
    losses: list[float] = []
    is_main = trainer.processes.rank == 0
    last = trainer.progress.elapsed_s
    for loss in trainer.run():
        losses.append(loss)
        yield trainer.recipe.spent(trainer.progress), loss
        if trainer.progress.elapsed_s - last >= trainer.recipe.evaluate_every_s:
            last = trainer.progress.elapsed_s
            if is_main:
                report(_checkpoint(trainer, heldout, losses))
            losses.clear()
    if is_main:
        report(_checkpoint(trainer, heldout, losses))


def _checkpoint(
    trainer: DrafterTrainer, heldout: ShardReader, losses: list[float]
) -> dict[str, object]:
    trainer.save()
    progress = trainer.progress
    return {
        "step": progress.step,
        "epoch": progress.epoch,
        "minutes": round(progress.elapsed_s / 60, 2),
        "loss": round(sum(losses) / max(1, len(losses)), 4),
        "heldout": trainer.evaluate(heldout),
    }


def draft_vocabulary(reader: ShardReader, size: int, always: tuple[int, ...]) -> torch.Tensor:
    """The `size` target ids with the most recorded probability mass, ascending.

    Counting the recorded distributions instead of the text's tokens ranks rare tokens better.
    Ids in `always` (end tokens, specials) are kept whatever they count.
    """
    mass = torch.zeros(reader.index.vocab_size)
    for sequence in reader:
        rows = slice(max(0, sequence.info.num_prompt - 1), sequence.info.num_tokens - 1)
        probs = sequence.top_log_probs[rows].exp()
        mass.index_add_(0, sequence.top_ids[rows].flatten().long(), probs.flatten())
    mass[list(always)] = float("inf")
    return mass.topk(size).indices.sort().values
