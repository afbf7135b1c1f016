"""The decoding loop with a clock around every stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

from dcoco_core.decode import decode
from dcoco_core.protocols import Corrector, Drafter, Verifier
from dcoco_core.types import Draft, DraftRequest, Lattice, Request, Round, Verdict

P = ParamSpec("P")
T = TypeVar("T")


class TimedStages:
    """Three stages that add up their own seconds. Rounds without a draft are not counted."""

    def __init__(self, verifier: Verifier, drafter: Drafter, corrector: Corrector) -> None:
        self._verifier, self._drafter, self._corrector = verifier, drafter, corrector
        self.reset()

    def reset(self) -> None:
        """Starts counting anew."""
        self.seconds = {"verify": 0.0, "draft": 0.0, "correct": 0.0}
        self._num_rounds = self._num_committed = 0

    @property
    def shares(self) -> dict[str, float]:
        """Each stage's share of the time of all stages."""
        total = sum(self.seconds.values())
        return {name: round(value / total, 4) for name, value in self.seconds.items()}

    @property
    def num_rounds(self) -> int:
        """Rounds with a draft since the last reset."""
        return self._num_rounds

    def share(self, stage: str) -> float:
        """One stage's share of the time of all stages."""
        return self.seconds[stage] / sum(self.seconds.values())

    @property
    def acceptance_length(self) -> float:
        """Tokens committed per round with a draft, pooled."""
        return self._num_committed / self._num_rounds

    def decode(self, requests: Iterable[Request]) -> Iterator[Verdict]:
        """dcoco_core.decode over the timed stages."""
        for verdict in decode(requests, self, self, self):
            if verdict.num_drafted:
                self._num_rounds += 1
                self._num_committed += len(verdict.token_ids)
            yield verdict

    @property
    def num_free_slots(self) -> int:
        """See Verifier."""
        return self._verifier.num_free_slots

    @property
    def num_candidates(self) -> int:
        """See Corrector."""
        return self._corrector.num_candidates

    def open(self, request: Request) -> None:
        """See Verifier."""
        self._verifier.open(request)

    def close(self, request_id: str) -> None:
        """See Verifier."""
        self._verifier.close(request_id)

    def release(self, request_ids: Iterable[str]) -> None:
        """See Drafter."""
        self._drafter.release(request_ids)

    def step(self, draft: Draft) -> Round:
        """See Verifier."""
        if not draft.headers:  # prefill and plain rows are not part of a speculative round
            return self._verifier.step(draft)
        return self._timed("verify", self._verifier.step, draft)

    def draft(self, request: DraftRequest) -> Lattice:
        """See Drafter."""
        return self._timed("draft", self._drafter.draft, request)

    def correct(self, lattice: Lattice) -> Draft:
        """See Corrector."""
        return self._timed("correct", self._corrector.correct, lattice)

    def _timed(self, stage: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        start = time.perf_counter()
        result = work(*args, **kwargs)
        self.seconds[stage] += time.perf_counter() - start
        return result
