"""Speculation statistics: counters that only grow, and rates derived from them.

Counters come from verdicts, so from committed tokens alone: an accepted draft token that a stop id
cut off counts nowhere. A rate without a denominator is None, never NaN. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dcoco_core.types import Verdict


@dataclass(slots=True)
class SpeculationRecord:
    """Counters of one request, or of many (`merge`).

    A round is a verdict on a draft. Prefill and plain decoding add nothing.

    Attributes:
        num_committed: tokens committed by rounds, recovered and bonus tokens included.
        rounds_by_accepted: [j] counts the rounds that accepted j draft tokens.
        rounds_by_drafted: [j] counts the rounds that judged j draft tokens.
    """

    num_committed: int = 0
    rounds_by_accepted: list[int] = field(default_factory=list)
    rounds_by_drafted: list[int] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Counts one verdict."""
        if not verdict.num_drafted:
            return
        self.num_committed += len(verdict.token_ids)
        # Both histograms keep one length, the longest draft seen plus one.
        size = verdict.num_drafted + 1
        _grow(self.rounds_by_accepted, size)
        _grow(self.rounds_by_drafted, size)
        self.rounds_by_accepted[verdict.num_accepted] += 1
        self.rounds_by_drafted[verdict.num_drafted] += 1

    def merge(self, other: SpeculationRecord) -> None:
        """Adds another record's counters to this one's."""
        self.num_committed += other.num_committed
        for mine, theirs in (
            (self.rounds_by_accepted, other.rounds_by_accepted),
            (self.rounds_by_drafted, other.rounds_by_drafted),
        ):
            _grow(mine, len(theirs))
            for place, count in enumerate(theirs):
                mine[place] += count

    @property
    def num_rounds(self) -> int:
        """Drafts judged."""
        return sum(self.rounds_by_drafted)

    @property
    def num_drafted(self) -> int:
        """Draft tokens judged."""
        return sum(length * count for length, count in enumerate(self.rounds_by_drafted))

    @property
    def num_accepted(self) -> int:
        """Draft tokens committed."""
        return sum(length * count for length, count in enumerate(self.rounds_by_accepted))

    @property
    def drafted_per_position(self) -> list[int]:
        """[k] counts the rounds that drafted a token at place k of the block."""
        return _at_least(self.rounds_by_drafted)

    @property
    def accepted_per_position(self) -> list[int]:
        """[k] counts the rounds that accepted the token at place k of the block."""
        return _at_least(self.rounds_by_accepted)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted tokens."""
        return _ratio(self.num_accepted, self.num_drafted)

    @property
    def acceptance_rate_per_position(self) -> list[float | None]:
        """Accepted / drafted at each place; counts a place as missed once an earlier one was."""
        return [
            _ratio(accepted, drafted)
            for accepted, drafted in zip(
                self.accepted_per_position, self.drafted_per_position, strict=True
            )
        ]

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens committed per round, the recovered or bonus token included."""
        return _ratio(self.num_committed, self.num_rounds)

    def summary(self) -> dict[str, object] | None:
        """vLLM's `metrics.speculative_decoding` object; None before the first round.

        Differs from vLLM where a stop cut a round: the mean counts committed tokens.
        `num_spec_tokens` is the longest draft of the record, since drafts vary in length here.
        """
        if self.num_rounds == 0:
            return None
        return {
            "mean_acceptance_length": self.mean_acceptance_length,
            "draft_acceptance_rate": self.acceptance_rate,
            "acceptance_histogram": list(self.rounds_by_accepted),
            "num_spec_steps": self.num_rounds,
            "num_accepted_draft_tokens": self.num_accepted,
            "num_draft_tokens": self.num_drafted,
            "num_spec_tokens": len(self.rounds_by_drafted) - 1,
        }


def _grow(counters: list[int], size: int) -> None:
    counters.extend([0] * (size - len(counters)))


def _at_least(counters: list[int]) -> list[int]:
    """[k] = how many of the counted were k + 1 or more."""
    return [sum(counters[place + 1 :]) for place in range(max(len(counters) - 1, 0))]


def _ratio(numerator: int, denominator: int) -> float | None:
    return numerator / denominator if denominator else None
