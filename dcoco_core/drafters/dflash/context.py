"""The drafter's share of the verifier: taps to context rows, hidden_norm(fc(taps)).

Projecting at the verifier means that context rows of the drafter's hidden size travel, not the
taps, which are several times wider.
"""

from __future__ import annotations

from pathlib import Path

import torch

from dcoco_core.drafters.dflash.checkpoint import (
    check_target,
    read_tensors,
)
from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.model import RMSNorm
from dcoco_core.drafters.fingerprint import fingerprint_checkpoint
from dcoco_core.errors import CheckpointError
from dcoco_core.target.interface import TargetTables
from dcoco_core.target.linear import Linear
from dcoco_core.target.tokenizer import TargetTokenizer


class DFlashContextProjection:
    """Implements protocols.ContextProjection."""

    def __init__(
        self, config: DFlashConfig, fc: torch.Tensor, norm: torch.Tensor, fingerprint: str
    ) -> None:
        self._layer_ids = config.target_layer_ids
        self._fingerprint = fingerprint
        self._fc = Linear(fc)
        self._norm = RMSNorm(config.hidden_size, config.rms_norm_eps).requires_grad_(False)
        self._norm.weight.data = norm

    @classmethod
    def load(
        cls,
        folder: Path,
        target: TargetTables,
        *,
        tokenizer: TargetTokenizer | None = None,
        dtype: torch.dtype | None = None,
    ) -> DFlashContextProjection:
        """Reads fc and hidden_norm of a checkpoint, and checks that it was made for `target`.

        Args:
            folder: the drafter's checkpoint.
            target: whose taps will be projected.
            tokenizer: the target's, to compare the chat template as well.
            dtype: of the products; the target's own if None.

        Raises:
            CheckpointError: the checkpoint is damaged or belongs to another target.
        """
        config = DFlashConfig.load(folder)
        check_target(config, target, tokenizer)
        tensors = read_tensors(folder, only=("fc.weight", "hidden_norm.weight"))
        width = len(config.target_layer_ids) * target.spec.hidden_size
        wanted = {
            "fc.weight": (config.hidden_size, width),
            "hidden_norm.weight": (config.hidden_size,),
        }
        for name, shape in wanted.items():
            found = tuple(tensors[name].shape) if name in tensors else None
            if found != shape:
                raise CheckpointError(f"{folder}: {name} is {found}, the target needs {shape}")
        wide = {
            n: t.to(target.embedding.device, dtype or target.embedding.dtype)
            for n, t in tensors.items()
        }
        return cls(
            config, wide["fc.weight"], wide["hidden_norm.weight"], fingerprint_checkpoint(folder)
        )

    @property
    def target_layer_ids(self) -> tuple[int, ...]:
        """Target blocks whose outputs are tapped, in the order they are concatenated."""
        return self._layer_ids

    @property
    def fingerprint(self) -> str:
        """The checkpoint's content hash."""
        return self._fingerprint

    @torch.inference_mode()
    def __call__(self, taps: torch.Tensor) -> torch.Tensor:
        """[N, num_taps * H_target] to context rows [N, H]."""
        rows: torch.Tensor = self._norm(self._fc(taps.to(self._fc.weight.dtype)))
        return rows
