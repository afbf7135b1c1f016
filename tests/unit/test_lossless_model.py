"""Losslessness on the real default model: speculative text equals plain text.

8 prompts x 48 tokens, each greedily and seeded, in mixed batches of 8 with exact numerics (no text
may differ) and solo and in batches with fast numerics (near-ties may fall differently).
`make test-lossless` does the same for 40 prompts x 96 tokens and every combination.
"""

from __future__ import annotations

import pytest

from dcoco_core.evaluation.stack import Stack, StackSource, load_stack, trained_correctors
from dcoco_core.prompts import own_prompts
from dcoco_core.target.linear import Numerics
from dcoco_core.types import Request
from tests.equality import compare, plain_texts, requests

CORRECTORS = trained_correctors()
# A block of one has no proposals, so the corrector makes no difference to it.
BLOCKS = [
    ("none", 1),
    *((corrector, size) for corrector in ("none", "dcoco") for size in (4, 8, 16)),
]
OTHERS = [(corrector, 8) for corrector in CORRECTORS if corrector not in ("none", "dcoco")]
PROMPTS = own_prompts(evaluation=True)[:8]
NUM_TOKENS = 48


class Reference:
    """A stack, the requests, and their plain texts."""

    def __init__(self, numerics: Numerics) -> None:
        self.stack: Stack = load_stack(StackSource(correctors=CORRECTORS), numerics=numerics)
        self.wanted: list[Request] = requests(self.stack, PROMPTS, NUM_TOKENS)
        self.texts = plain_texts(self.stack, self.wanted)


@pytest.fixture(scope="module")
def fast() -> Reference:
    return Reference("fast")


@pytest.fixture(scope="module")
def exact() -> Reference:
    return Reference("exact")


@pytest.mark.parametrize(("corrector", "block_size"), [*BLOCKS, *OTHERS])
def test_mixed_batches_with_exact_numerics(
    exact: Reference, corrector: str, block_size: int
) -> None:
    outcome = compare(
        exact.stack,
        exact.wanted,
        exact.texts,
        corrector=corrector,
        block_size=block_size,
        num_slots=8,
    )
    assert outcome.num_texts == 2 * len(PROMPTS)
    assert not outcome.near_ties
    assert not outcome.failures


@pytest.mark.parametrize("num_slots", [1, 8])
@pytest.mark.parametrize(("corrector", "block_size"), BLOCKS)
def test_fast_numerics(fast: Reference, corrector: str, block_size: int, num_slots: int) -> None:
    outcome = compare(
        fast.stack,
        fast.wanted,
        fast.texts,
        corrector=corrector,
        block_size=block_size,
        num_slots=num_slots,
    )
    assert not outcome.failures


def test_texts_are_real(exact: Reference) -> None:
    """The comparison is about text: long enough, different, and seeds matter."""
    texts = list(exact.texts.values())
    assert sum(len(text) for text in texts) > 0.6 * NUM_TOKENS * len(texts)
    assert len(set(texts)) == len(texts)
