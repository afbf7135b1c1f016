"""The drafters by name. A new one is a package of its own and one factory here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dcoco_core.registry import Registry

if TYPE_CHECKING:
    from dcoco_core.drafters.dflash.drafter import DrafterSettings
    from dcoco_core.protocols import ContextProjection, Drafter
    from dcoco_core.target.interface import TargetTables
    from dcoco_core.target.tokenizer import TargetTokenizer


@dataclass(frozen=True, slots=True)
class DrafterSource:
    """What a drafter is loaded from. Without a tokenizer the chat template is not compared."""

    folder: Path
    target: TargetTables
    tokenizer: TargetTokenizer | None = None


DRAFTERS: Registry[Drafter] = Registry("drafter")
PROJECTIONS: Registry[ContextProjection] = Registry("context projection")


@DRAFTERS.register("dflash")
def _dflash(source: DrafterSource, settings: DrafterSettings) -> Drafter:
    from dcoco_core.drafters.dflash.drafter import DFlashDrafter

    return DFlashDrafter.load(source.folder, source.target, settings, source.tokenizer)


@PROJECTIONS.register("dflash")
def _dflash_projection(source: DrafterSource) -> ContextProjection:
    from dcoco_core.drafters.dflash.context import DFlashContextProjection

    return DFlashContextProjection.load(source.folder, source.target, tokenizer=source.tokenizer)
