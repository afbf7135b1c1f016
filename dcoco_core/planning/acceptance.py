"""How often the verifier accepts, by place in the block: estimated from decayed counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul


class AcceptanceEstimate:
    """Acceptance of one corrector, or of anything else that is counted by itself.

    A place counts as tried only when every place before it was accepted. Each place fades with its
    own trials, so that places nobody tries keep what is known of them; one that was never tried is
    taken to be like the place before it.

    Args:
        num_positions: places of the longest draft.
        prior_rate: acceptance of the first place before anything is known.
        prior_rounds: how many rounds that belief is worth.
        half_life: trials of a place after which one counts half.
    """

    def __init__(
        self,
        num_positions: int,
        *,
        prior_rate: float = 0.7,
        prior_rounds: float = 4.0,
        half_life: float = 400.0,
    ) -> None:
        if not 0.0 <= prior_rate <= 1.0:
            raise ValueError(f"prior_rate must be 0 to 1, got {prior_rate}")
        self._prior_rate, self._prior_rounds = prior_rate, prior_rounds
        self._decay = 0.5 ** (1 / half_life)
        self._tried = [0.0] * num_positions
        self._accepted = [0.0] * num_positions

    def observe(self, num_drafted: int, num_accepted: int) -> None:
        """Counts one round that judged `num_drafted` proposals and accepted a prefix of them.

        A round that a stop or the length cap cut short is no evidence and does not belong here.
        """
        if not 0 <= num_accepted <= num_drafted <= len(self._tried):
            raise ValueError(
                f"expected 0 <= num_accepted <= num_drafted <= {len(self._tried)}, "
                f"got {num_accepted} of {num_drafted}"
            )
        for place in range(min(num_accepted + 1, num_drafted)):
            self._tried[place] = self._tried[place] * self._decay + 1.0
            self._accepted[place] *= self._decay
            if place < num_accepted:
                self._accepted[place] += 1.0

    @property
    def rates(self) -> tuple[float, ...]:
        """[k]: probability that place k is accepted, given that all before it were."""
        rates, before = [], self._prior_rate
        for tried, accepted in zip(self._tried, self._accepted, strict=True):
            before = (accepted + self._prior_rounds * before) / (tried + self._prior_rounds)
            rates.append(before)
        return tuple(rates)

    @property
    def survival(self) -> tuple[float, ...]:
        """[k]: probability that places 0..k are all accepted."""
        return survival_of(self.rates)


def survival_of(rates: Sequence[float]) -> tuple[float, ...]:
    """Running products of conditional acceptance rates."""
    return tuple(accumulate(rates, mul))


def expected_committed(survival: Sequence[float], num_draft_tokens: int) -> float:
    """Tokens a round commits on average: the accepted ones and the one the target adds.

    Raises:
        ValueError: `survival` does not reach so far.
    """
    if num_draft_tokens > len(survival):
        raise ValueError(f"survival is known for {len(survival)} places, not {num_draft_tokens}")
    return 1.0 + sum(survival[:num_draft_tokens])
