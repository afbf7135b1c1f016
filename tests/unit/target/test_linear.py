"""Products: the same numbers as torch's by every path, and bitwise independent rows if exact."""

from __future__ import annotations

import pytest
import torch

from dcoco_core.errors import ConfigError
from dcoco_core.target.linear import WEIGHT_FIRST_MAX_ROWS, Linear, Numerics

SHAPES = [(576, 576), (960, 576), (576, 1536), (50, 40), (33, 65)]


@pytest.mark.parametrize("num_rows", [0, 1, 2, 3, 5, 16, 40])
@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_equals_torch(num_rows: int, numerics: Numerics, has_bias: bool) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(50, 40), torch.randn(50) if has_bias else None
    x = torch.randn(num_rows, 40)
    product = Linear(weight, bias, numerics=numerics)(x)
    expected = _reference(x, weight, bias)
    assert product.shape == (num_rows, 50)
    assert product.is_contiguous()
    torch.testing.assert_close(product, expected, atol=2e-5, rtol=1e-5)


def _reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product = x.double() @ weight.double().t()
    return (product if bias is None else product + bias.double()).float()


def test_bfloat16() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(50, 40).bfloat16(), torch.randn(7, 40).bfloat16()
    product = Linear(weight)(x)
    assert product.dtype == torch.bfloat16
    torch.testing.assert_close(product.float(), _reference(x, weight, None), atol=0.1, rtol=0.02)


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_rows_do_not_depend_on_their_company(shape: tuple[int, int]) -> None:
    """Every row count from 1 to 64 and some above, at the start and shifted through the batch."""
    torch.manual_seed(0)
    linear = Linear(torch.randn(shape), numerics="exact")
    x = torch.randn(320, shape[1])
    expected = linear(x)
    for num_rows in (*range(1, 65), 100, 256, 320):
        assert torch.equal(linear(x[:num_rows]), expected[:num_rows]), num_rows
        shifted = linear(x[:num_rows].roll(num_rows // 2, 0)).roll(-(num_rows // 2), 0)
        assert torch.equal(shifted, expected[:num_rows]), num_rows


def test_exact_rows_do_not_depend_on_the_number_of_threads() -> None:
    torch.manual_seed(0)
    linear = Linear(torch.randn(960, 576), numerics="exact")
    x = torch.randn(33, 576)
    num_threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = linear(x)
        torch.set_num_threads(2)
        assert torch.equal(linear(x), alone)
    finally:
        torch.set_num_threads(num_threads)


@pytest.mark.skipif(WEIGHT_FIRST_MAX_ROWS == 0, reason="every row count is multiplied packed here")
def test_fast_rows_do_depend_on_it() -> None:
    """The control of the test above: if this fails, `exact` costs time for nothing."""
    torch.manual_seed(0)
    linear = Linear(torch.randn(576, 1536))
    x = torch.randn(16, 1536)
    assert not torch.equal(linear(x[:1]), linear(x)[:1])


def test_exact_without_a_packed_kernel_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"torch\.float64.*Use 'fast'"):
        Linear(torch.randn(4, 4, dtype=torch.float64), numerics="exact")
    assert Linear(torch.eye(4, dtype=torch.float64))(torch.ones(1, 4).double()).sum() == 4
