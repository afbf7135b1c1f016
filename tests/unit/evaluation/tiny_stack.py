"""A tiny random target with an untrained drafter and corrector, loaded from files."""

from __future__ import annotations

from pathlib import Path

from dcoco_core.evaluation.stack import Stack, StackSource, load_stack, trained_correctors
from tests.tiny_model import write_corrector, write_drafter, write_target

PREFIX = "tiny"


def write_weights(folder: Path) -> StackSource:
    """A target in folder/target, a drafter and a corrector in folder/weights."""
    target, weights = write_target(folder / "target"), folder / "weights"
    drafter = write_drafter(weights / f"{PREFIX}-dflash", target)
    write_corrector(weights / f"{PREFIX}-dcoco", target, drafter)
    return StackSource(str(target), drafter, trained_correctors(weights, PREFIX), 256)


def tiny_stack(folder: Path) -> Stack:
    """The stack of those files, whose logits do not depend on what is computed beside them."""
    return load_stack(write_weights(folder), numerics="exact")
