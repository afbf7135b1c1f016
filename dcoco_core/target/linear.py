"""The one module that multiplies activations [N, in] by a weight [out, in].

On a CPU the time of a product of few rows is the time of reading the weight once, if the kernel
lets it be; torch's default path is up to four times slower at 2-64 rows. Three ways are used:

- 1 or 2 rows on a CPU without AMX: `weight @ x.T`, one row doubled. Two columns read the weight at
  full bandwidth, the matrix-vector path does not.
- otherwise: oneDNN with the weight packed once for 16 rows, the fastest from 3 rows to 256, and
  its rows do not depend on one another: see `numerics`.
- accelerators, and dtypes oneDNN has no kernel for: torch's own linear.

Float32, all products of a SmolLM2-135M token, milliseconds on two cores with AVX-512 (torch 2.13):

    rows                    1      2      4      8     16     32     64    256
    x @ weight.T           43     87     70     79     93     97    177    443
    weight @ x.T           43     31     41     58     81     87    155    479
    packed for 16 rows     34     34     31     36     44     57    113    417
    weight @ x.T, doubled  31

`python -m dcoco_core.evaluation.bench_linear` measures this table; the constants below follow it.
With AMX two columns take twice as long as the packed product does (43 against 20 ms), so there it
is the only way. The rule is fixed, not timed at start: two runs must take the same path, or near
ties would turn the other way.

`numerics: exact` makes a row's result bitwise the same whatever is computed beside it and wherever
it lies in the batch. The packed kernel adds in an order that depends on the weight alone, except
that a single row may take another kernel, so fewer than EXACT_MIN_ROWS rows are padded.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional

from dcoco_core.errors import ConfigError

Numerics = Literal["fast", "exact"]

WEIGHT_FIRST_MAX_ROWS = 0 if torch.cpu.get_capabilities().get("amx_tile") else 2
PACKED_FOR_ROWS = 16
EXACT_MIN_ROWS = 16
PACKED_DTYPES = (torch.float32, torch.bfloat16)


class Linear:
    """A weight [out, in], with an optional bias [out], ready to multiply.

    Packing copies the weight: the layer holds it twice, so that every row count has its fast path.

    Raises:
        ConfigError: numerics "exact" where there is no packed kernel.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, numerics: Numerics = "fast"
    ) -> None:
        self.weight = weight.detach()
        self.bias = None if bias is None else bias.detach()
        self._is_exact = numerics == "exact"
        self._packed = _pack(self.weight)
        if self._is_exact and self._packed is None:
            raise ConfigError(
                "numerics 'exact' needs a CPU with oneDNN kernels for "
                f"{weight.dtype}; the weight is on {weight.device}. Use 'fast'."
            )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[N, in] to [N, out], contiguous. Carries no gradients."""
        if self._packed is None:
            return functional.linear(x, self.weight, self.bias)
        num_rows = x.shape[0]
        if self._is_exact:
            if num_rows >= EXACT_MIN_ROWS:
                return self._multiply_packed(self._packed, x)
            padded = functional.pad(x, (0, 0, 0, EXACT_MIN_ROWS - num_rows))
            return self._multiply_packed(self._packed, padded)[:num_rows]
        if num_rows <= WEIGHT_FIRST_MAX_ROWS:
            return self._multiply_weight_first(x)
        return self._multiply_packed(self._packed, x)

    def _multiply_weight_first(self, x: torch.Tensor) -> torch.Tensor:
        num_rows = x.shape[0]
        doubled = x.repeat(2, 1) if num_rows == 1 else x
        product = torch.mm(self.weight, doubled.t())[:, :num_rows].t().contiguous()
        return product if self.bias is None else product.add_(self.bias)

    def _multiply_packed(self, packed: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x.contiguous(), packed, self.bias, "none", [], ""
        )
        return product


def can_pack(weight: torch.Tensor) -> bool:
    """Whether oneDNN has a packed kernel for this weight here."""
    return (
        weight.device.type == "cpu"
        and weight.dtype in PACKED_DTYPES
        and torch.backends.mkldnn.is_available()
        and (weight.dtype != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def _pack(weight: torch.Tensor) -> torch.Tensor | None:
    if not can_pack(weight):
        return None
    with torch.inference_mode():
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(
            weight.contiguous(), PACKED_FOR_ROWS
        )
    return packed
