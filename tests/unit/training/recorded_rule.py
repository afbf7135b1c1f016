"""A tiny target and recorded text in which every token follows from the last one."""

from __future__ import annotations

from pathlib import Path

from dcoco_core.target.loading import load_target
from dcoco_core.training.answers import Answer
from dcoco_core.training.drafter import Recipe
from dcoco_core.training.drafter_run import Shape
from dcoco_core.training.prepare import record_answers
from tests.unit.training.tiny_folder import MASK_ID, VOCAB, write_tiny_target

SHAPE = Shape(
    num_layers=2,
    intermediate_size=32,
    block_size=5,
    mask_token_id=MASK_ID,
    draft_vocab_size=VOCAB - 4,
)
RECIPE = Recipe(
    steps=24,
    learning_rate=5e-3,
    block_lengths=(2, 4),
    sequences_per_step=4,
    anchors_per_sequence=6,
    autocast=False,
)


def token_rule(start: int, length: int) -> list[int]:
    """A text in which every token follows from the last one."""
    ids = [4 + start % (VOCAB - 4)]
    for _ in range(length - 1):
        ids.append(4 + (3 * (ids[-1] - 4) + 1) % (VOCAB - 4))
    return ids


def write_recorded(folder: Path) -> Path:
    """Writes the target and the shards recorded from it; returns the folder of both."""
    target = load_target(write_tiny_target(folder / "target"))
    answers = []
    for i in range(80):
        text = token_rule(i, 24)
        answers.append(Answer("rule", (4 + i % 50, *text[:5]), tuple(text[5:]), 0.0, False))
    total = sum(record_answers(target, answers, (0, 2), folder / "shards", 200))
    assert total == 80 * 25
    return folder
