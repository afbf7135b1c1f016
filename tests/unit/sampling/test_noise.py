"""The keyed noise: its integers, its logarithm, its independence of order and device."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from dcoco_core.sampling.noise import (
    Stream,
    bits_to_gumbel,
    gumbel,
    portable_log,
    random_bits,
    stream_key,
    stream_keys,
    uniform,
    vocabulary_bits,
)
from dcoco_core.types import SamplingParams

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def numpy_mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


def numpy_log(x: np.ndarray) -> np.ndarray:
    mantissa, exponent = np.frexp(x)
    is_small = mantissa < 0.7071067811865476
    mantissa = np.where(is_small, mantissa * 2.0, mantissa)
    exponent = exponent.astype(np.float64) - is_small
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square = ratio * ratio
    series = np.full_like(x, 1.0 / 23.0)
    for denominator in range(21, 0, -2):
        series = series * square + 1.0 / denominator
    log: np.ndarray = exponent * 0.6931471805599453 + series * (ratio + ratio)
    return log


def numpy_gumbel(key: int, position: int, ids: np.ndarray, salt: int = 0) -> np.ndarray:
    with np.errstate(over="ignore"):
        seed = numpy_mix(np.array([key], dtype=np.uint64) * GOLDEN + np.uint64(salt))
        row = numpy_mix(seed + np.uint64(position + 1) * GOLDEN)
        bits = numpy_mix(row + (ids.astype(np.uint64) + np.uint64(1)) * GOLDEN)
    draws = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return -numpy_log(-numpy_log(draws))


@pytest.mark.parametrize("stream", Stream)
@pytest.mark.parametrize("key", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_torch_and_numpy_agree_to_the_bit(key: int, stream: Stream) -> None:
    ids = np.arange(20_000)
    keys = stream_keys([SamplingParams(noise_key=key)], stream)
    ours = gumbel(keys, torch.tensor([977]), torch.from_numpy(ids))
    theirs = numpy_gumbel(key, 977, ids, stream.value)
    assert np.array_equal(ours.numpy().view(np.int64), theirs.view(np.int64))


def test_known_values() -> None:
    # Seeded texts of earlier releases depend on these numbers.
    keys = stream_keys([SamplingParams(noise_key=42)], Stream.TARGET)
    bits = random_bits(keys, torch.tensor([7]), torch.tensor([0, 1, 49151]))
    assert bits.tolist() == [2103088954154024, 215128229309589, 1839484454082492]


def test_negative_and_64_bit_keys_are_taken_modulo_2_to_the_64() -> None:
    assert stream_key(-1, Stream.TARGET) == stream_key(2**64 - 1, Stream.TARGET)
    assert -(2**63) <= stream_key(2**64 - 1, Stream.DRAFT) < 2**63


def test_portable_log_is_accurate_and_exact_at_one() -> None:
    generator = torch.Generator().manual_seed(0)
    near_one = 1.0 - torch.logspace(-16, -1, 500, dtype=torch.float64)
    values = torch.cat(
        [torch.rand(100_000, generator=generator, dtype=torch.float64) + 1e-300, near_one]
    )
    values = torch.cat([values, torch.logspace(-300, 300, 2000, dtype=torch.float64)])
    error = (portable_log(values) - values.log()).abs()
    assert float((error / values.log().abs().clamp(min=1.0)).max()) < 2e-15
    relative = (portable_log(near_one) / near_one.log() - 1.0).abs()
    assert float(relative.max()) < 1e-14
    assert portable_log(torch.ones(1, dtype=torch.float64)).item() == 0.0


def test_extreme_bits_give_finite_noise() -> None:
    noise = bits_to_gumbel(torch.tensor([0, 2**52 - 1]))
    assert noise.isfinite().all()
    assert noise[0] == pytest.approx(-np.log(53 * np.log(2)), abs=1e-12)
    assert noise[1] == pytest.approx(53 * np.log(2), abs=1e-9)


def test_a_draw_does_not_depend_on_what_else_is_drawn() -> None:
    keys = stream_keys([SamplingParams(noise_key=k) for k in (3, 4)], Stream.TARGET)
    positions = torch.tensor([10, 11])
    together = gumbel(keys[:, None], positions[:, None], torch.arange(1000))
    alone = gumbel(keys[1], positions[1], torch.tensor([999, 5]))
    assert together[1, [999, 5]].tolist() == alone.tolist()
    rows = [row.clone() for row in vocabulary_bits(keys, positions, 1000)]
    assert torch.equal(
        torch.stack(rows), random_bits(keys[:, None], positions[:, None], torch.arange(1000))
    )


def draws_over(axis: str, stream: Stream = Stream.ACCEPT, num_draws: int = 40_000) -> np.ndarray:
    """Uniforms over consecutive keys, positions or ids, the other two fixed."""
    counter = torch.arange(num_draws)
    fixed = torch.full((num_draws,), 5)
    keys = torch.tensor(
        [stream_key(k, stream) for k in (range(num_draws) if axis == "keys" else [9])]
    )
    positions = counter if axis == "positions" else fixed
    ids = counter if axis == "ids" else fixed
    return uniform(keys, positions, ids).numpy()


@pytest.mark.parametrize("axis", ["keys", "positions", "ids"])
def test_consecutive_counters_give_independent_uniforms(axis: str) -> None:
    draws = draws_over(axis)
    assert 0.0 < draws.min() < draws.max() < 1.0
    assert scipy.stats.kstest(draws, "uniform").pvalue > 1e-3
    cells = np.histogram2d(draws[:-1], draws[1:], bins=16, range=[[0, 1], [0, 1]])[0]
    assert scipy.stats.chisquare(cells.ravel()).pvalue > 1e-3


@pytest.mark.parametrize("axis", ["keys", "positions", "ids"])
def test_streams_are_independent(axis: str) -> None:
    draws = [draws_over(axis, stream) for stream in Stream]
    correlations = np.corrcoef(draws)[np.triu_indices(len(draws), 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(len(draws[0]))


def test_gumbel_has_the_gumbel_distribution() -> None:
    keys = stream_keys([SamplingParams(noise_key=1)], Stream.TARGET)
    noise = gumbel(keys, torch.tensor([1]), torch.arange(50_000)).numpy()
    assert scipy.stats.kstest(noise, scipy.stats.gumbel_r.cdf).pvalue > 1e-3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cpu_and_gpu_agree_to_the_bit() -> None:
    keys = stream_keys([SamplingParams(noise_key=k) for k in range(16)], Stream.TARGET)[:, None]
    positions, ids = torch.arange(16)[:, None], torch.arange(49_152)
    there = gumbel(keys.cuda(), positions.cuda(), ids.cuda()).cpu()
    assert torch.equal(gumbel(keys, positions, ids), there)
