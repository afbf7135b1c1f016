"""Core objects out of the application's arguments: what each process of a topology loads.

Paths in the arguments are absolute by now (see `deployments.checkpoints`).
"""

from __future__ import annotations

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
from deployments.pipeline.by_corrector import ByCorrector

if TYPE_CHECKING:
    from dcoco_core.protocols import ContextProjection
    from deployments.config import AppArgs


def tables_of(args: AppArgs) -> LoadedTables:
    """The target's embedding and head, for processes that do not run the target."""
    return load_tables(resolve_target(args.target), dtype=DTYPES[args.dtype])


def make_verifier(args: AppArgs) -> tuple[TargetVerifier, ContextProjection | None]:
    """The target with its slots, and the drafter's share of the work, if there is a drafter."""
    folder = resolve_target(args.target)
    target = load_target(folder, dtype=args.dtype, numerics=args.numerics)
    projection = None
    if args.drafter is not None:
        projection = DFlashContextProjection.load(
            Path(args.drafter), target, tokenizer=TargetTokenizer(folder)
        )
    settings = VerifierSettings(args.max_slots, args.max_model_len, args.prefill_chunk)
    return TargetVerifier(target, settings, projection), projection


def make_drafter(args: AppArgs, tables: LoadedTables, num_candidates: int) -> DFlashDrafter:
    """The drafter for correctors that want `num_candidates` per position."""
    settings = DrafterSettings(
        num_candidates=num_candidates,
        max_slots=args.max_slots,
        max_positions=args.max_model_len,
        dtype=DTYPES[args.dtype],
    )
    return DFlashDrafter.load(_drafter_folder(args), tables, settings)


def make_correctors(args: AppArgs, tables: LoadedTables) -> ByCorrector:
    """Every corrector of the arguments."""
    fingerprint = fingerprint_checkpoint(_drafter_folder(args))
    return ByCorrector(
        {
            name: load_corrector(
                name,
                None if folder is None else Path(folder),
                embedding=tables.embedding,
                drafter_fingerprint=fingerprint,
            )
            for name, folder in args.correctors.items()
        }
    )


def _drafter_folder(args: AppArgs) -> Path:
    assert args.drafter is not None, "without a drafter there are no drafts to make or correct"
    return Path(args.drafter)
