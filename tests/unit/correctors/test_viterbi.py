"""The best path against every path there is."""

from __future__ import annotations

import itertools

import pytest
import torch

from dcoco_core.correctors.pair_scores import PairScores
from dcoco_core.correctors.viterbi import ViterbiCorrector, best_path
from dcoco_core.errors import ConfigError
from tests.unit.correctors.lattices import GREEDY, REJECTION, random_lattice
from tests.unit.correctors.untrained import inference, random_corrector


def log_prob(scores: PairScores, row: int, path: tuple[int, ...]) -> float:
    total = scores.first[row].log_softmax(-1)[path[0]]
    for position, (before, rank) in enumerate(itertools.pairwise(path)):
        total = total + scores.pairs[row, position, before].log_softmax(-1)[rank]
    return float(total)


@pytest.mark.parametrize("num_positions", [1, 2, 4])
def test_no_path_is_better(num_positions):
    generator = torch.Generator().manual_seed(4)
    scores = PairScores(
        2 * torch.randn(6, 3, generator=generator),
        2 * torch.randn(6, num_positions - 1, 3, 3, generator=generator),
    )
    paths = list(itertools.product(range(3), repeat=num_positions))
    found = best_path(scores)
    walk_is_best = []
    for row in range(6):
        best = max(paths, key=lambda path: log_prob(scores, row, path))
        assert tuple(found[row].tolist()) == best
        rank, walk = torch.zeros(1, dtype=torch.int64), []
        for position in range(num_positions):
            one = PairScores(scores.first[row, None], scores.pairs[row, None])
            rank = one.after(position, rank).argmax(-1)
            walk.append(int(rank))
        walk_is_best.append(tuple(walk) == best)
    if num_positions == 1:
        assert all(walk_is_best)
    if num_positions == 4:
        assert not all(walk_is_best)


def test_it_drafts_the_best_path_and_only_greedily():
    corrector = inference(random_corrector("dcoco"))
    lattice = random_lattice([GREEDY] * 8)
    pairs = corrector.pair_scores(lattice)
    draft = ViterbiCorrector(corrector).correct(lattice)
    expected = lattice.candidate_ids.gather(-1, best_path(pairs)[..., None])[..., 0]
    assert torch.equal(draft.token_ids, expected)
    assert not torch.equal(draft.token_ids, corrector.correct(lattice).token_ids)
    with pytest.raises(ConfigError, match="temperature 0 only"):
        ViterbiCorrector(corrector).correct(random_lattice([REJECTION]))
