"""The uncorrected draft: every position's most likely candidate."""

from __future__ import annotations

from dcoco_core.types import Draft, Lattice


class NoneCorrector:
    """Takes the drafter's top candidate at each position, for every row alike.

    The positions of a block draft are marginals; sampling them apart from each other collapses
    acceptance, so rows with a temperature get the top candidate too and their draft is one-hot.
    """

    @property
    def num_candidates(self) -> int:
        """One: no other candidate is looked at."""
        return 1

    def correct(self, lattice: Lattice) -> Draft:
        """Candidates are ordered by falling logit, so the first one is the choice."""
        return Draft(
            headers=lattice.headers,
            token_ids=lattice.candidate_ids[..., 0],
            gaps=lattice.gaps,
        )
