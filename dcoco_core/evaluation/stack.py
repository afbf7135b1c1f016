"""Target, drafter and correctors in one process, for tests and measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from dcoco_core.correctors.catalog import load_corrector
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
DRAFTER = WEIGHTS / "smollm2-135m-dflash"
CORRECTORS: Mapping[str, Path | None] = {"none": None, "dcoco": WEIGHTS / "smollm2-135m-dcoco"}


@dataclass(frozen=True)
class Stack:
    """The default model with everything that drafts for it; makes fresh stages on request."""

    folder: Path
    target: TargetModel
    tokenizer: TargetTokenizer
    projection: ContextProjection
    correctors: Mapping[str, Corrector]

    def verifier(self, max_slots: int = 8, *, drafting: bool = True) -> TargetVerifier:
        """A verifier with empty slots of 1,024 positions; without drafting it taps nothing."""
        settings = VerifierSettings(max_slots, max_model_len=1024)
        return TargetVerifier(self.target, settings, self.projection if drafting else None)

    def drafter(self, num_draft_tokens: int, max_slots: int = 8) -> DFlashDrafter:
        """A drafter with empty slots, asked for blocks of `num_draft_tokens` proposals."""
        settings = DrafterSettings(
            num_candidates=max(c.num_candidates for c in self.correctors.values()),
            block_size=num_draft_tokens + 1,
            max_slots=max_slots,
            max_positions=1024,
        )
        return DFlashDrafter.load(DRAFTER, self.target, settings, self.tokenizer)

    def chat(self, prompt: str) -> tuple[int, ...]:
        """The token ids of a one-turn chat."""
        return tuple(self.tokenizer.encode_chat([{"role": "user", "content": prompt}]))


def load_stack(*, numerics: Numerics = "fast", num_threads: int | None = None) -> Stack:
    """Loads the default model and the weights of this repository.

    Raises:
        CheckpointError: a checkpoint is missing, damaged, or does not fit the target.
    """
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    folder = resolve_target(DEFAULT_TARGET)
    target = load_target(folder, numerics=numerics)
    tokenizer = TargetTokenizer(folder)
    projection = DFlashContextProjection.load(DRAFTER, target, tokenizer=tokenizer)
    correctors = dict(_correctors(target, projection.fingerprint))
    return Stack(folder, target, tokenizer, projection, correctors)


def _correctors(target: TargetModel, fingerprint: str) -> Iterator[tuple[str, Corrector]]:
    for name, folder in CORRECTORS.items():
        yield (
            name,
            load_corrector(
                name, folder, embedding=target.embedding, drafter_fingerprint=fingerprint
            ),
        )
