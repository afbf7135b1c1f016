"""The correctors by name. A new one is a file of its own and one factory here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dcoco_core.errors import ConfigError
from dcoco_core.registry import Registry

if TYPE_CHECKING:
    import torch

    from dcoco_core.protocols import Corrector


@dataclass(frozen=True, slots=True)
class CorrectorSource:
    """What a corrector is loaded from. `drafter_fingerprint` None skips that check."""

    name: str
    folder: Path | None
    embedding: torch.Tensor  # [V, H] input embedding of the target
    drafter_fingerprint: str | None = None

    @property
    def required_folder(self) -> Path:
        """The checkpoint folder of a corrector that has weights."""
        if self.folder is None:
            raise ConfigError(f"corrector {self.name!r} needs a checkpoint folder, got none")
        return self.folder


CORRECTORS: Registry[Corrector] = Registry("corrector")


@CORRECTORS.register("none")
def _none(source: CorrectorSource) -> Corrector:
    from dcoco_core.correctors.none import NoneCorrector

    if source.folder is not None:
        raise ConfigError(f"corrector 'none' has no weights, got folder {source.folder}")
    return NoneCorrector()


@CORRECTORS.register("dcoco-paper")  # the same class, trained with the published design
@CORRECTORS.register("dcoco")
def _dcoco(source: CorrectorSource) -> Corrector:
    from dcoco_core.correctors.dcoco.checkpoint import load_dcoco

    return load_dcoco(source.required_folder, source.embedding, source.drafter_fingerprint)


@CORRECTORS.register("dflash2-selector")
def _dflash2_selector(source: CorrectorSource) -> Corrector:
    from dcoco_core.correctors.dflash2.checkpoint import load_selector

    return load_selector(source.required_folder, source.embedding, source.drafter_fingerprint)


@CORRECTORS.register("lilicorr")
def _lilicorr(source: CorrectorSource) -> Corrector:
    from dcoco_core.correctors.lilicorr.checkpoint import load_lilicorr

    return load_lilicorr(source.required_folder, source.embedding, source.drafter_fingerprint)


@CORRECTORS.register("domino")
def _domino(source: CorrectorSource) -> Corrector:
    from dcoco_core.correctors.domino.checkpoint import load_domino

    return load_domino(source.required_folder, source.embedding, source.drafter_fingerprint)


@CORRECTORS.register("dspark-vanilla")
@CORRECTORS.register("dspark-gated")
@CORRECTORS.register("dspark-rnn")
def _dspark(source: CorrectorSource) -> Corrector:
    from dcoco_core.correctors.dspark.checkpoint import load_dspark

    head_type = source.name.removeprefix("dspark-")
    folder = source.required_folder
    return load_dspark(folder, head_type, source.embedding, source.drafter_fingerprint)


def load_corrector(
    name: str,
    folder: Path | None = None,
    *,
    embedding: torch.Tensor,
    drafter_fingerprint: str | None = None,
) -> Corrector:
    """The corrector `name` on the embedding's device, ready for inference.

    Args:
        name: one of CORRECTORS.
        folder: its checkpoint; None for a corrector without weights.
        embedding: [V, H] input embedding of the target. Most keep a projection of it only.
        drafter_fingerprint: of the drafter it will correct, compared with the checkpoint's.

    Raises:
        ConfigError: an unknown name, or a folder missing or superfluous.
        CheckpointError: weights that are missing, damaged, or belong to another target or drafter.
    """
    return CORRECTORS[name](CorrectorSource(name, folder, embedding, drafter_fingerprint))
