"""Several correctors behind one: every row goes to the one that its header names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dcoco_core.drafts import merge_drafts
from dcoco_core.errors import RequestError
from dcoco_core.registry import unknown_name

if TYPE_CHECKING:
    from dcoco_core.protocols import Corrector
    from dcoco_core.types import Draft, Lattice


class ByCorrector:
    """Implements Corrector; the draft's rows are grouped by corrector, not in lattice order."""

    def __init__(self, correctors: Mapping[str, Corrector]) -> None:
        self._correctors = dict(correctors)

    @property
    def num_candidates(self) -> int:
        """The most that any of them wants."""
        return max(corrector.num_candidates for corrector in self._correctors.values())

    def correct(self, lattice: Lattice) -> Draft:
        """See Corrector. Raises RequestError for a corrector that is not loaded."""
        rows_by_name: dict[str, list[int]] = {}
        for row, header in enumerate(lattice.headers):
            rows_by_name.setdefault(header.corrector, []).append(row)
        drafts = []
        for name, rows in rows_by_name.items():
            if name not in self._correctors:
                message = unknown_name("corrector", name, list(self._correctors))
                raise RequestError(message, field="corrector")
            corrector = self._correctors[name]
            drafts.append(corrector.correct(_select(lattice, rows, corrector.num_candidates)))
        return replace(merge_drafts(drafts), gaps=lattice.gaps)


def _select(lattice: Lattice, rows: list[int], num_candidates: int) -> Lattice:
    """Some rows of a lattice, with no more candidates than wanted."""
    kept = slice(None) if len(rows) == len(lattice.headers) else rows
    return replace(
        lattice,
        headers=tuple(lattice.headers[row] for row in rows),
        candidate_ids=lattice.candidate_ids[kept, :, :num_candidates],
        candidate_logits=lattice.candidate_logits[kept, :, :num_candidates],
        log_normalizer=lattice.log_normalizer[kept],
        hidden=lattice.hidden[kept],
        last_context=lattice.last_context[kept],
        gaps=(),
    )
