"""Counter-based noise: every random number is a function of (key, stream, position, token id).

Nothing is drawn from a generator, so a number depends on no batch mate, no earlier request and no
order of evaluation, and it can be asked for one token id at a time. The integers are those of
splitmix64 (Steele, Lea, Flood 2014) in wrapping int64 arithmetic. Two logarithms turn 52 of their
bits into Gumbel noise; `portable_log` makes that step bitwise equal on every device and in numpy.
Do not compile these functions: a compiler may fuse a product and a sum, which rounds differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

import torch

from dcoco_core.types import SamplingParams

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB

_SQRT_HALF = 0.7071067811865476
_LN_2 = 0.6931471805599453
_NUM_LOG_TERMS = 12  # the 13th is below 1e-19 of the sum for |s| <= 0.172

UNIFORM_BITS = 52  # with 53 the largest value + 0.5 would round up to 1


class Stream(Enum):
    """What a draw is for. Draws of different streams are independent; the value is a salt.

    `coupled` uses TARGET for the draft and the decision, which is its point. `rejection` keeps
    the other three apart: sharing any two of them makes it lossy.
    """

    TARGET = 0
    DRAFT = 0xD1B54A32D192ED03
    ACCEPT = 0xABC98388FB8FAC03
    RESIDUAL = 0x8CB92BA72F3D8DD7


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix_int(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def stream_key(noise_key: int, stream: Stream) -> int:
    """The key of one stream of a request, as a signed 64-bit integer."""
    return _signed(_mix_int((noise_key * _GOLDEN + stream.value) & _MASK))


def stream_keys(
    sampling: Iterable[SamplingParams], stream: Stream, device: torch.device | None = None
) -> torch.Tensor:
    """`stream_key` of every row, [R] int64."""
    keys = [stream_key(row.noise_key, stream) for row in sampling]
    return torch.tensor(keys, dtype=torch.int64, device=device)


def _mix_(values: torch.Tensor, scratch: torch.Tensor | None = None) -> torch.Tensor:
    """The splitmix64 finaliser, in place; `scratch` is memory of the same shape to work in."""
    scratch = torch.empty_like(values) if scratch is None else scratch
    for shift, factor in ((30, _MIX_1), (27, _MIX_2), (31, None)):
        # int64 shifts copy the sign bit; the mask makes the shift logical.
        torch.bitwise_right_shift(values, shift, out=scratch)
        values.bitwise_xor_(scratch.bitwise_and_((1 << (64 - shift)) - 1))
        if factor is not None:
            values.mul_(_signed(factor))
    return values


def _high_bits_(values: torch.Tensor) -> torch.Tensor:
    mask = (1 << UNIFORM_BITS) - 1
    return values.bitwise_right_shift_(64 - UNIFORM_BITS).bitwise_and_(mask)


def _row_keys(keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return _mix_(keys + (positions + 1) * _signed(_GOLDEN))


def random_bits(keys: torch.Tensor, positions: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """52 random bits per element, int64; the three int64 arguments broadcast.

    Args:
        keys: From `stream_keys`.
        positions: Absolute position in the sequence of the token being decided.
        ids: Token ids, or any other number that tells draws at one position apart.
    """
    return _high_bits_(_mix_(_row_keys(keys, positions) + (ids + 1) * _signed(_GOLDEN)))


def vocabulary_bits(
    keys: torch.Tensor, positions: torch.Tensor, vocab_size: int
) -> Iterator[torch.Tensor]:
    """`random_bits` of all ids, [V], one row after the other in the same memory.

    A row is valid until the next is asked for.
    """
    id_terms = torch.arange(1, vocab_size + 1, device=keys.device).mul_(_signed(_GOLDEN))
    bits, scratch = torch.empty_like(id_terms), torch.empty_like(id_terms)
    for row_key in _row_keys(keys, positions):
        torch.add(id_terms, row_key, out=bits)
        yield _high_bits_(_mix_(bits, scratch))


def uniform(keys: torch.Tensor, positions: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Uniform numbers in the open interval (0, 1), float64. Arguments as in `random_bits`."""
    return bits_to_uniform(random_bits(keys, positions, ids))


def gumbel(keys: torch.Tensor, positions: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, float64. Arguments as in `random_bits`."""
    return bits_to_gumbel(random_bits(keys, positions, ids))


def bits_to_uniform(bits: torch.Tensor) -> torch.Tensor:
    """Centres of 2**52 equal cells of (0, 1)."""
    return bits.double().add_(0.5).mul_(2.0**-UNIFORM_BITS)


def bits_to_gumbel(bits: torch.Tensor) -> torch.Tensor:
    """-log(-log(u)) of `bits_to_uniform`."""
    return portable_log(portable_log(bits_to_uniform(bits)).neg_()).neg_()


def portable_log(values: torch.Tensor) -> torch.Tensor:
    """Natural logarithm of positive normal float64 numbers, to 2e-15.

    Library logarithms differ in the last bit between devices. This one is frexp and the series
    log m = 2 artanh(s), s = (m - 1) / (m + 1), in single IEEE operations.
    """
    mantissa, exponent = torch.frexp(values)  # mantissa in [0.5, 1)
    is_small = mantissa < _SQRT_HALF
    mantissa = torch.where(is_small, mantissa + mantissa, mantissa)
    exponent = exponent.double().sub_(is_small.double())
    ratio = (mantissa - 1.0).div_(mantissa + 1.0)
    square = ratio * ratio
    series = torch.full_like(square, 1.0 / (2 * _NUM_LOG_TERMS - 1))
    for term in range(_NUM_LOG_TERMS - 2, -1, -1):
        series.mul_(square).add_(1.0 / (2 * term + 1))
    return exponent.mul_(_LN_2).add_(series.mul_(ratio + ratio))
