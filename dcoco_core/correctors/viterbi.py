"""The most likely whole path through a lattice: an experiment beside the prefix walk.

Verification keeps a prefix, so the walk takes the best continuation of what it already has, and
LiLiCorr (arXiv 2608.20530) reports that this beats the best path. Nothing serves with this module;
it measures the difference on greedy text.
"""

from __future__ import annotations

from typing import Protocol

import torch

from dcoco_core.correctors.pair_scores import PairScores
from dcoco_core.correctors.prefix_walk import first_candidates
from dcoco_core.errors import ConfigError
from dcoco_core.protocols import Corrector
from dcoco_core.types import Draft, Lattice, Rule


class PairCorrector(Corrector, Protocol):
    """A corrector that can score all pairs of a lattice."""

    def pair_scores(self, lattice: Lattice) -> PairScores:
        """All scores of a lattice on the corrector's device."""
        ...


class ViterbiCorrector:
    """Implements the Corrector protocol for greedy rows on the scores of another corrector."""

    def __init__(self, corrector: PairCorrector) -> None:
        self._corrector = corrector

    @property
    def num_candidates(self) -> int:
        """K of the scores."""
        return self._corrector.num_candidates

    @torch.inference_mode()
    def correct(self, lattice: Lattice) -> Draft:
        """The best path of every row, padding included in it: rows should be of one length.

        Raises:
            ConfigError: a row that samples; a best path is no draw from a distribution.
        """
        if any(header.sampling.rule is not Rule.GREEDY for header in lattice.headers):
            raise ConfigError("the best path is defined at temperature 0 only")
        lattice = first_candidates(lattice, self.num_candidates)
        ranks = best_path(self._corrector.pair_scores(lattice))
        token_ids = lattice.candidate_ids.gather(-1, ranks[..., None])[..., 0]
        return Draft(lattice.headers, token_ids, lattice.candidate_ids, gaps=lattice.gaps)


def best_path(scores: PairScores) -> torch.Tensor:
    """[R, S] ranks of the path with the largest sum of log-probs, softmax after each predecessor.

    Exact, by dynamic programming: S steps over K x K scores.
    """
    pairs = scores.pairs.double().log_softmax(dim=-1)
    reached = scores.first.double().log_softmax(dim=-1)  # [R, K] best log-prob of paths ending here
    came_from = []
    for position in range(pairs.shape[1]):
        reached, best = (reached[..., None] + pairs[:, position]).max(dim=1)
        came_from.append(best)
    ranks = [reached.argmax(dim=-1)]
    for best in reversed(came_from):
        ranks.append(best.gather(1, ranks[-1][:, None])[:, 0])
    return torch.stack(ranks[::-1], dim=1)
