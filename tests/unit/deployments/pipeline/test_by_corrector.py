"""Rows of one lattice go to the correctors that their headers name."""

from dataclasses import replace

import pytest
import torch

from dcoco_core.errors import RequestError
from dcoco_core.types import Draft, Lattice
from deployments.pipeline.by_corrector import ByCorrector
from tests.unit.deployments.pipeline import lattices


class Constant:
    """Chooses the candidate at one place; remembers how wide a lattice it saw."""

    def __init__(self, place: int, num_candidates: int) -> None:
        self.place, self.num_candidates = place, num_candidates
        self.seen: list[tuple[int, ...]] = []

    def correct(self, lattice: Lattice) -> Draft:
        self.seen.append(tuple(lattice.candidate_ids.shape))
        assert lattice.hidden.shape[0] == lattice.last_context.shape[0] == len(lattice.headers)
        return Draft(lattice.headers, lattice.candidate_ids[..., self.place], gaps=lattice.gaps)


def test_rows_are_grouped_and_each_gets_its_own_choice() -> None:
    first, other = Constant(0, 2), Constant(3, 4)
    both = ByCorrector({"none": first, "other": other})
    assert both.num_candidates == 4
    lattice = lattices.lattice()
    draft = both.correct(lattice)
    assert first.seen == [(2, 3, 2)]
    assert other.seen == [(1, 3, 4)]
    by_name = {header.request_id: row for row, header in enumerate(draft.headers)}
    assert set(by_name) == {"a", "b", "c"}
    for row, (name, place) in enumerate([("a", 0), ("b", 3), ("c", 0)]):
        expected = lattice.candidate_ids[row, :, place]
        assert torch.equal(draft.token_ids[by_name[name]], expected)
    assert draft.gaps == lattice.gaps


def test_a_lattice_of_gaps_alone_is_a_draft_of_gaps_alone() -> None:
    full = lattices.lattice()
    empty = replace(
        full,
        headers=(),
        candidate_ids=full.candidate_ids[:0],
        candidate_logits=full.candidate_logits[:0],
        log_normalizer=full.log_normalizer[:0],
        hidden=full.hidden[:0],
        last_context=full.last_context[:0],
    )
    draft = ByCorrector({"none": Constant(0, 1)}).correct(empty)
    assert draft.headers == ()
    assert draft.token_ids.shape[0] == 0
    assert draft.gaps == full.gaps


def test_an_unknown_corrector_is_named() -> None:
    with pytest.raises(RequestError, match=r"unknown corrector 'other'.*Allowed: none"):
        ByCorrector({"none": Constant(0, 1)}).correct(lattices.lattice())
