"""Core objects out of the application's arguments. Imports torch only where something computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deployments.emulated_stages import EmulatedStages

if TYPE_CHECKING:
    from deployments.config import AppArgs
    from deployments.loaded import Stages


def stages_of(args: AppArgs) -> Stages:
    """Real stages, or emulated ones where the arguments say so."""
    if args.emulation is not None:
        return EmulatedStages(args, args.emulation)
    from deployments.model_stages import ModelStages

    return ModelStages(args)
