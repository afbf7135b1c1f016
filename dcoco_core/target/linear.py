"""The one module that multiplies activations [N, in] by a weight [out, in]."""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional

Numerics = Literal["fast", "exact"]


class Linear:
    """A weight [out, in], with an optional bias [out], ready to multiply."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, numerics: Numerics = "fast"
    ) -> None:
        self.weight = weight
        self.bias = bias
        self._numerics = numerics

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[N, in] to [N, out]."""
        return functional.linear(x, self.weight, self.bias)
