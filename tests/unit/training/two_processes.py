"""One of several processes of a drafter run; what it saw goes to a file named by its rank."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.dcoco.scorer import ScorerConfig
from dcoco_core.correctors.dcoco.trainable import TrainableDCOCO
from dcoco_core.training.corrector import CorrectorRecipe, CorrectorTrainer
from dcoco_core.training.drafter import DrafterTrainer, train
from dcoco_core.training.drafter_run import start_run
from dcoco_core.training.processes import Processes, start_processes
from dcoco_core.training.shards import ShardReader
from tests.unit.training.pair_blocks import HIDDEN, NUM_CANDIDATES, embedding, pair_blocks
from tests.unit.training.recorded_rule import RECIPE, SHAPE


def digest(*networks: dict[str, torch.Tensor]) -> str:
    """Of all weights."""
    found = hashlib.sha256()
    for tensors in networks:
        for tensor in tensors.values():
            found.update(tensor.detach().numpy().tobytes())
    return found.hexdigest()


def digest_of(trainer: DrafterTrainer) -> str:
    """Of weights and averages."""
    return digest(trainer.model.state_dict(), trainer.ema.tensors)


def train_corrector(folder: Path, processes: Processes) -> dict[str, object]:
    """Each process has its own batches of the same blocks, and its own dropout."""
    torch.manual_seed(0)
    config = ScorerConfig(
        HIDDEN, num_candidates=NUM_CANDIDATES, candidate_size=16, pair_size=16, mlp_size=32
    )
    corrector = TrainableDCOCO(embedding(), 0.1, config)
    torch.manual_seed(processes.rank)
    recipe = CorrectorRecipe(steps=30, blocks_per_step=64, steps_per_evaluation=10)
    trainer = CorrectorTrainer(
        *(corrector, pair_blocks(800, 1), pair_blocks(100, 2), recipe, folder),
        belonging=Belonging(embedding_fingerprint(embedding()), "drafter-a"),
        processes=processes,
    )
    list(trainer.run())
    return {"corrector": digest(corrector.module.state_dict()), "curve": trainer.curve}


def averages(processes: Processes) -> list[float | None]:
    """Gradients of a parameter used by all, by the main process alone, and by none."""
    every, main, none = (nn.Parameter(torch.tensor(1.0)) for _ in range(3))
    loss = every * (processes.rank + 1)
    if processes.rank == 0:
        loss = loss + 5 * main
    loss.backward()
    mean = processes.average(loss, [every, main, none])
    gradients = [None if p.grad is None else float(p.grad) for p in (every, main, none)]
    return [float(mean), *gradients]


def main(recorded: Path) -> None:
    """Trains in one go, then in two halves."""
    with start_processes("cpu") as processes:

        def start(name: str) -> DrafterTrainer:
            paths = (recorded / "shards", recorded / name)
            return start_run(recorded / "target", SHAPE, RECIPE, *paths, None, processes)

        seen = train_corrector(recorded / "corrector", processes)
        seen["averages"] = averages(processes)
        whole = start("whole")
        reports: list[dict[str, object]] = []
        heldout = ShardReader(recorded / "shards", "heldout")
        seen["losses"] = [loss for _, loss in train(whole, heldout, reports.append)]
        seen["whole"] = digest_of(whole)
        seen["num_reports"] = len(reports)

        first = start("halves")
        run = first.run()
        for _ in range(11):
            next(run)
        if processes.rank == 0:
            first.save()
        processes.agree(None)  # the state is on disk
        second = start("halves")
        seen["resumed_at"] = second.progress.step
        list(second.run())
        seen["halves"] = digest_of(second)

        # By the clock: each process has its own, and only the main one's counts.
        first.recipe = replace(RECIPE, steps=None, minutes=1 / 60)
        first.progress.elapsed_s = 0.9 - 0.5 * processes.rank
        seen["timed_steps"] = first.progress.step + len(list(first.run()))
        (recorded / f"rank-{processes.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
