"""Trains a corrector on a frozen drafter's blocks, teacher-forced along the recorded text.

At every position that can still matter (all earlier gold tokens were candidates) the scores after
the gold predecessor are compared with what the target wanted there: the recorded token, and the
target's probabilities of the candidates. A small text is soon overfitted, so a slice of it, whole
texts, stops the run, and the average of the weights that did best there (by expected length) is
what ships.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dcoco_core.correctors.checkpoint import Belonging
from dcoco_core.correctors.pair_scores import left_ids
from dcoco_core.correctors.trainable import TrainableCorrector, WithOwnLoss
from dcoco_core.training.blocks import Blocks
from dcoco_core.training.corrector_eval import accepted_greedily, expected_length
from dcoco_core.training.processes import OneProcess, Processes, share_of
from dcoco_core.training.schedule import Schedule
from dcoco_core.training.state import Ema, Progress, load_state, save_state

_MARGIN = 2.0
"""LiLiCorr's (arXiv 2608.20530), in units of the score."""


@dataclass(frozen=True, slots=True)
class CorrectorRecipe(Schedule):
    """How to train.

    `soft_share` of the loss compares with the target's probabilities, the rest with the recorded
    token. `hinge_weight` times a hinge on the recorded token's lead is added: LiLiCorr's margin
    variant weighs it as much as its cross-entropy. `patience` evaluations in a row without a better
    one also end the run.
    """

    warmup: float = 0.03
    weight_decay: float = 0.05
    soft_share: float = 1.0
    hinge_weight: float = 0.0
    blocks_per_step: int = 256
    steps_per_evaluation: int = 100
    patience: int = 8
    ema_decay: float = 0.99
    seed: int = 0


class CorrectorTrainer:
    """One run: owns the corrector's weights, their average, the optimizer and the run's folder.

    Args:
        corrector: what is trained.
        training: blocks to learn from.
        stopping: blocks that decide when to stop and which weights to keep.
        recipe: how.
        folder: holds state, curve and, in `checkpoint`, the best weights so far. A run found
            there goes on.
        belonging: the target and drafter the blocks come from.
        processes: where to compute, and beside whom. The corrector is on that device and the same
            in all of them; a step learns from a batch of each.
    """

    def __init__(  # noqa: PLR0913 - a run is made of these
        self,
        corrector: TrainableCorrector,
        training: Blocks,
        stopping: Blocks,
        recipe: CorrectorRecipe,
        folder: Path,
        belonging: Belonging,
        processes: Processes | None = None,
    ) -> None:
        self._processes = processes or OneProcess()
        self.recipe, self._folder, self._belonging = recipe, folder, belonging
        self._corrector, self._training, self._stopping = corrector, training, stopping
        module = corrector.module
        decayed = [p for p in module.parameters() if p.ndim > 1]
        free = [p for p in module.parameters() if p.ndim <= 1]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": recipe.weight_decay},
                {"params": free, "weight_decay": 0.0},
            ],
            lr=recipe.learning_rate,
            betas=(0.9, 0.98),
        )
        self._ema = Ema(module, recipe.ema_decay)
        self.progress = Progress()
        self.curve: list[dict[str, Any]] = []
        if (folder / "state.safetensors").exists():
            self.progress = load_state(
                folder, module, self._optimizer, self._ema, self._processes.count
            )
            self.curve = json.loads((folder / "curve.json").read_text())

    def run(self) -> Iterator[float]:
        """Trains until the budget or the patience is spent; yields the loss of every step."""
        recipe, progress = self.recipe, self.progress
        losses: list[float] = []
        while recipe.spent(progress) < 1 and not self._has_lost_patience():
            order = share_of(self._order(progress.epoch), self._processes)
            while progress.batch < len(order) and recipe.spent(progress) < 1:
                began = time.monotonic()
                losses.append(self._step(self._training[order[progress.batch]]))
                progress.step += 1
                progress.batch += 1
                elapsed_s = progress.elapsed_s + time.monotonic() - began
                # One clock for all processes, so that they end at the same step.
                progress.elapsed_s = self._processes.agree(elapsed_s)
                yield losses[-1]
                if progress.step % recipe.steps_per_evaluation == 0:
                    self._evaluate(losses)
                    losses = []
                    if self._has_lost_patience():
                        return
            if progress.batch == len(order):
                progress.epoch += 1
                progress.batch = 0
        if losses:
            self._evaluate(losses)

    def _order(self, epoch: int) -> list[torch.Tensor]:
        """Block numbers of every batch of an epoch, a function of seed and epoch alone."""
        generator = torch.Generator().manual_seed(1_000_003 * self.recipe.seed + epoch)
        order = torch.randperm(len(self._training), generator=generator)
        return list(torch.split(order, self.recipe.blocks_per_step))

    def _step(self, blocks: Blocks) -> float:
        recipe, module = self.recipe, self._corrector.module
        for group in self._optimizer.param_groups:
            group["lr"] = recipe.learning_rate_at(recipe.spent(self.progress))
        module.train()
        blocks = blocks.to(self._processes.device)
        loss = corrector_loss(self._corrector, blocks, recipe.soft_share, recipe.hinge_weight)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        mean_loss = self._processes.average(loss, module.parameters())
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        self._optimizer.step()
        self._ema.update()
        return float(mean_loss)

    def _evaluate(self, losses: list[float]) -> None:
        """The main process measures and saves; all learn the curve, which may end the run."""
        if self._processes.rank == 0:
            self._measure(losses)
        self.curve = self._processes.agree(self.curve)

    def _measure(self, losses: list[float]) -> None:
        """Measures the averaged weights, keeps them if they are the best, saves the run."""
        module = self._corrector.module
        trained = {name: p.detach().clone() for name, p in module.named_parameters()}
        module.load_state_dict(self._ema.tensors, strict=False)  # buffers are not trained
        expected = round(expected_length(self._corrector, self._stopping), 4)
        if expected > max((e["expected_length"] for e in self.curve), default=0.0):
            self._corrector.save(self._folder / "checkpoint", self._belonging)
        acceptance = accepted_greedily(self._corrector.inference(), self._stopping)
        module.load_state_dict(trained, strict=False)
        self.curve.append(
            {
                "step": self.progress.step,
                "minutes": round(self.progress.elapsed_s / 60, 3),
                "loss": round(sum(losses) / len(losses), 4),
                "expected_length": expected,
                "acceptance_length": acceptance.acceptance_length,
            }
        )
        save_state(
            *(self._folder, module, self._optimizer, self._ema, self.progress),
            num_processes=self._processes.count,
        )
        partial = self._folder / "curve.json.partial"
        partial.write_text(json.dumps(self.curve, indent=1) + "\n")
        partial.replace(self._folder / "curve.json")

    def _has_lost_patience(self) -> bool:
        lengths = [entry["expected_length"] for entry in self.curve]
        return (
            bool(lengths) and len(lengths) - 1 - lengths.index(max(lengths)) >= self.recipe.patience
        )


def corrector_loss(
    corrector: TrainableCorrector, blocks: Blocks, soft_share: float, hinge_weight: float = 0.0
) -> torch.Tensor:
    """Cross-entropy over the candidates after the gold predecessor, averaged over its places.

    The recorded token counts where it is a candidate, the target's probabilities (temperature 1,
    not renormalised: where the candidates hold little of them, little is to be learnt) everywhere.
    A corrector's own loss, if it has one, is added.
    """
    lattice = blocks.lattice()
    rows, positions = blocks.reachable().nonzero(as_tuple=True)
    scores = corrector.scores(lattice, blocks.gold_ids, rows, positions)
    log_probs = scores.log_softmax(dim=-1)
    ranks = blocks.gold_ranks()[rows, positions]
    found = ranks < log_probs.shape[1]
    hard = -log_probs.gather(1, ranks.clamp(max=log_probs.shape[1] - 1)[:, None])[:, 0]
    hard = (hard * found).sum() / found.sum().clamp(min=1)
    wanted = blocks.target_probs[rows, positions].float()
    soft = -(wanted * log_probs).sum() / wanted.sum().clamp(min=1e-6)
    loss = (1 - soft_share) * hard + soft_share * soft
    if hinge_weight > 0:
        loss = loss + hinge_weight * _hinge(scores[found], ranks[found])
    if isinstance(corrector, WithOwnLoss):
        left = left_ids(lattice, blocks.gold_ids)[rows, positions]
        loss = loss + corrector.own_loss(left, lattice.hidden[rows, positions], scores, wanted)
    return loss


def _hinge(scores: torch.Tensor, ranks: torch.Tensor) -> torch.Tensor:
    """What the gold candidate's lead over the best other one lacks of _MARGIN, averaged."""
    gold = scores.gather(1, ranks[:, None])[:, 0]
    others = scores.scatter(1, ranks[:, None], float("-inf")).amax(dim=1)
    return (_MARGIN - (gold - others)).relu().sum() / max(len(gold), 1)
