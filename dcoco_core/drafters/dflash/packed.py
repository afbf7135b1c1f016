"""The network as drafting runs it: every projection through the project's fast products."""

from __future__ import annotations

import copy

import torch
from torch import nn

from dcoco_core.drafters.dflash.model import DFlashModel
from dcoco_core.target.linear import Linear


class PackedLinear(nn.Module):
    """A projection without gradients; see dcoco_core.target.linear."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self._linear = Linear(weight)

    @property
    def weight(self) -> torch.Tensor:
        """[out, in]."""
        return self._linear.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]."""
        return self._linear(x.flatten(0, -2)).view(*x.shape[:-1], -1)


def packed_for_drafting(model: DFlashModel) -> DFlashModel:
    """A copy of the network with its projections packed; the given one can still be trained."""
    packed = copy.deepcopy(model).requires_grad_(False)
    for parent in list(packed.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                parent.register_module(name, PackedLinear(child.weight))
    return packed
