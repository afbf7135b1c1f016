"""Real stages: target, drafter and correctors out of their checkpoints.

Paths in the arguments are absolute by now (see `deployments.checkpoints`).
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dcoco_core.correctors.catalog import load_corrector
from dcoco_core.drafters.dflash.context import DFlashContextProjection
from dcoco_core.drafters.dflash.drafter import DFlashDrafter, DrafterSettings
from dcoco_core.drafters.fingerprint import fingerprint_checkpoint
from dcoco_core.target.folder import resolve_target
from dcoco_core.target.loading import DTYPES, load_target
from dcoco_core.target.tables import LoadedTables, load_tables
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.target.verifier import TargetVerifier, VerifierSettings
from deployments.loaded import LoadedDrafter, LoadedVerifier
from deployments.pipeline.by_corrector import ByCorrector

if TYPE_CHECKING:
    from deployments.config import AppArgs


class ModelStages:
    """Implements Stages with real models."""

    def __init__(self, args: AppArgs) -> None:
        self._args = args

    @cached_property
    def tables(self) -> LoadedTables:
        """The target's embedding and head, for processes that do not run the target."""
        args = self._args
        return load_tables(resolve_target(args.target), dtype=DTYPES[args.dtype])

    def verifier(self) -> LoadedVerifier:
        """The target with its slots, and the drafter's share of the work, if there is a drafter."""
        args = self._args
        folder = resolve_target(args.target)
        target = load_target(folder, dtype=args.dtype, numerics=args.numerics)
        projection = None
        if args.drafter is not None:
            projection = DFlashContextProjection.load(
                Path(args.drafter), target, tokenizer=TargetTokenizer(folder)
            )
        settings = VerifierSettings(args.max_slots, args.max_model_len, args.prefill_chunk)
        core = TargetVerifier(target, settings, projection)
        fingerprint = None if projection is None else projection.fingerprint
        return LoadedVerifier(core, fingerprint, cache_bytes=core.cache_bytes)

    def drafter(self, num_candidates: int) -> LoadedDrafter:
        """The drafter for correctors that want `num_candidates` per position."""
        args = self._args
        settings = DrafterSettings(
            num_candidates=num_candidates,
            max_slots=args.max_slots,
            max_positions=args.max_model_len,
            dtype=DTYPES[args.dtype],
        )
        core = DFlashDrafter.load(self._drafter_folder, self.tables, settings)
        return LoadedDrafter(core, core.fingerprint)

    def correctors(self) -> ByCorrector:
        """Every corrector of the arguments."""
        fingerprint = fingerprint_checkpoint(self._drafter_folder)
        return ByCorrector(
            {
                name: load_corrector(
                    name,
                    None if folder is None else Path(folder),
                    embedding=self.tables.embedding,
                    drafter_fingerprint=fingerprint,
                )
                for name, folder in self._args.correctors.items()
            }
        )

    @property
    def _drafter_folder(self) -> Path:
        drafter = self._args.drafter
        assert drafter is not None, "without a drafter there are no drafts to make or correct"
        return Path(drafter)
