"""Target, drafter and correctors in one process, for tests and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from dcoco_core.correctors.catalog import CORRECTORS, load_corrector
from dcoco_core.drafters.dflash.context import DFlashContextProjection
from dcoco_core.drafters.dflash.drafter import DFlashDrafter, DrafterSettings
from dcoco_core.protocols import ContextProjection, Corrector
from dcoco_core.target.folder import DEFAULT_TARGET, resolve_target
from dcoco_core.target.interface import TargetModel
from dcoco_core.target.linear import Numerics
from dcoco_core.target.loading import load_target
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.target.verifier import TargetVerifier, VerifierSettings

WEIGHTS = Path(__file__).resolve().parents[2] / "weights"
PREFIX = "smollm2-135m"
DRAFTER = WEIGHTS / f"{PREFIX}-dflash"
DEFAULT_CORRECTORS: Mapping[str, Path | None] = {"none": None, "dcoco": WEIGHTS / f"{PREFIX}-dcoco"}


def trained_correctors(folder: Path = WEIGHTS, prefix: str = PREFIX) -> dict[str, Path | None]:
    """The correctors that `folder` has weights for, as <prefix>-<name>, and `none`."""
    folders = {name: folder / f"{prefix}-{name}" for name in CORRECTORS}
    return {"none": None} | {name: path for name, path in folders.items() if path.is_dir()}


@dataclass(frozen=True, slots=True)
class StackSource:
    """What a stack is loaded from: the default model and the weights of this repository."""

    target: str = DEFAULT_TARGET
    drafter: Path = DRAFTER
    correctors: Mapping[str, Path | None] = field(default_factory=lambda: DEFAULT_CORRECTORS)
    max_positions: int = 1024


@dataclass(frozen=True)
class Stack:
    """A model with everything that drafts for it; makes fresh stages on request."""

    source: StackSource
    folder: Path
    target: TargetModel
    tokenizer: TargetTokenizer
    projection: ContextProjection
    correctors: Mapping[str, Corrector]

    @property
    def max_positions(self) -> int:
        """The longest sequence that its stages hold."""
        return min(self.source.max_positions, self.target.spec.max_positions)

    def verifier(self, max_slots: int = 8, *, drafting: bool = True) -> TargetVerifier:
        """A verifier with empty slots; without drafting it taps nothing."""
        settings = VerifierSettings(max_slots, max_model_len=self.max_positions)
        return TargetVerifier(self.target, settings, self.projection if drafting else None)

    def drafter(
        self, num_draft_tokens: int, max_slots: int = 8, num_candidates: int = 1
    ) -> DFlashDrafter:
        """A drafter with empty slots, asked for blocks of `num_draft_tokens` proposals.

        It lists `num_candidates` per position, or as many as a corrector of the stack asks for.
        """
        wanted = (corrector.num_candidates for corrector in self.correctors.values())
        settings = DrafterSettings(
            num_candidates=max(num_candidates, *wanted),
            block_size=num_draft_tokens + 1,
            max_slots=max_slots,
            max_positions=self.max_positions,
        )
        return DFlashDrafter.load(self.source.drafter, self.target, settings, self.tokenizer)

    def chat(self, prompt: str) -> tuple[int, ...]:
        """The token ids of a one-turn chat."""
        return tuple(self.tokenizer.encode_chat([{"role": "user", "content": prompt}]))


def load_stack(
    source: StackSource | None = None,
    *,
    numerics: Numerics = "fast",
    num_threads: int | None = None,
) -> Stack:
    """Loads a target, a drafter and correctors that were trained for each other.

    Raises:
        CheckpointError: a checkpoint is missing, damaged, or does not fit the target.
    """
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    source = source or StackSource()
    folder = resolve_target(source.target)
    target = load_target(folder, numerics=numerics)
    tokenizer = TargetTokenizer(folder)
    projection = DFlashContextProjection.load(source.drafter, target, tokenizer=tokenizer)
    correctors = {
        name: load_corrector(
            name,
            weights,
            embedding=target.embedding,
            drafter_fingerprint=projection.fingerprint,
        )
        for name, weights in source.correctors.items()
    }
    return Stack(source, folder, target, tokenizer, projection, correctors)
