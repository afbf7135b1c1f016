"""How many proposals of each row to verify when the target's time is shared.

After the scheduler of DSpark (arXiv 2607.05147): proposals of all rows compete by the probability
that they survive, and are admitted while the tokens committed per second rise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise


def row_lengths(
    survivals: Sequence[Sequence[float]], seconds: Callable[[int], float], budget: int
) -> tuple[int, ...]:
    """Proposals to verify of each row.

    Lossless only if nothing in `survivals` saw a token that was drawn at random in the round it
    decides about: a length that depends on the token it may cut off changes what is accepted.
    Estimates from earlier rounds are safe.

    Args:
        survivals: by row, [k] the probability that proposals 0..k are all accepted.
        seconds: of a round that verifies so many proposals, all rows together.
        budget: the most proposals to verify, all rows together.

    Raises:
        ValueError: a row's survival rises from one place to the next or is no probability.
    """
    for row, survival in enumerate(survivals):
        steps = [1.0, *survival, 0.0]
        if any(after > before for before, after in pairwise(steps)):
            raise ValueError(f"survival of row {row} must fall from at most 1: {list(survival)}")
    # Falling survival keeps a row's proposals in order, so every row gets a prefix of its own.
    offers = sorted(
        (-chance, place, row)
        for row, survival in enumerate(survivals)
        for place, chance in enumerate(survival)
    )
    lengths = [0] * len(survivals)
    committed = float(len(survivals))
    rate = committed / seconds(0)
    for admitted, (loss, _, row) in enumerate(offers[: max(budget, 0)], 1):
        committed -= loss
        next_rate = committed / seconds(admitted)
        if next_rate <= rate:
            break
        rate = next_rate
        lengths[row] += 1
    return tuple(lengths)
