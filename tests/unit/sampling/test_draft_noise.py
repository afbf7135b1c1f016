"""The noise correctors draft with: none, the target's own, or the draft stream's."""

from __future__ import annotations

import torch

from dcoco_core.sampling.draft_noise import draft_perturbation
from dcoco_core.sampling.noise import Stream, gumbel, stream_key
from dcoco_core.types import RowHeader, SamplingParams


def header(sampling: SamplingParams, start: int) -> RowHeader:
    return RowHeader(
        request_id="r",
        generation=0,
        start=start,
        anchor_id=1,
        num_draft_tokens=3,
        sampling=sampling,
        corrector="none",
        context_start=0,
        num_context_rows=0,
    )


HEADERS = [
    header(SamplingParams(temperature=0.0, seed=3, noise_key=3), 10),
    header(SamplingParams(temperature=0.5, seed=4, noise_key=4), 20),
    header(SamplingParams(temperature=0.8, noise_key=5), 30),
]
CANDIDATES = torch.arange(3 * 3 * 4).reshape(3, 3, 4) * 1000


def test_each_rule_gets_its_stream_at_the_absolute_position() -> None:
    inv_temperature, perturbation, is_sampled = draft_perturbation(HEADERS, CANDIDATES)
    assert inv_temperature.tolist() == [1.0, 2.0, 1.25]
    assert inv_temperature.dtype == perturbation.dtype == torch.float64
    assert is_sampled.tolist() == [False, False, True]
    assert perturbation[0].count_nonzero() == 0
    for row, stream in ((1, Stream.TARGET), (2, Stream.DRAFT)):
        key = torch.tensor(stream_key(HEADERS[row].sampling.noise_key, stream))
        for place in range(3):
            position = torch.tensor(HEADERS[row].start + 1 + place)
            expected = gumbel(key, position, CANDIDATES[row, place])
            assert torch.equal(perturbation[row, place], expected)


def test_a_row_does_not_depend_on_its_batch() -> None:
    _, together, _ = draft_perturbation(HEADERS, CANDIDATES)
    _, alone, _ = draft_perturbation(HEADERS[2:], CANDIDATES[2:])
    assert torch.equal(together[2:], alone)


def test_empty_batches_and_blocks() -> None:
    _, perturbation, is_sampled = draft_perturbation([], CANDIDATES[:0])
    assert perturbation.shape == (0, 3, 4)
    assert is_sampled.shape == (0,)
    _, perturbation, _ = draft_perturbation(HEADERS, CANDIDATES[:, :0])
    assert perturbation.shape == (3, 0, 4)
