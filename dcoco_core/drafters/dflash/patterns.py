"""Which keys the block rows of a layer see, beyond the rule that a block sees its own context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class AttentionPattern:
    """Which keys a layer's block rows see: all of them, or those within `window` positions."""

    is_causal: bool = False
    window: int | None = None

    def restrict(self, seen: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
        """Narrows a mask by `distance`, query position minus key position (same shape).

        Without causality the window is symmetric: |distance| < window.
        """
        if self.is_causal:
            seen = seen & (distance >= 0)
        if self.window is not None:
            seen = seen & (distance.abs() < self.window)
        return seen
