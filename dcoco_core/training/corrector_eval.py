"""What a corrector makes of drafted blocks: acceptance by its walk, against what is possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from dcoco_core.correctors.trainable import TrainableCorrector
from dcoco_core.protocols import Corrector
from dcoco_core.training.blocks import END_OF_TEXT, Blocks

_ROWS_PER_BATCH = 256


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance over blocks. Acceptance length counts the token the target adds."""

    num_blocks: int
    acceptance_length: float
    per_position: list[float]  # joint: the share of blocks accepted up to and including it

    @classmethod
    def of(cls, hits: torch.Tensor) -> Acceptance:
        """From [N, S] bool: the draft is right at this position."""
        accepted = hits.int().cumprod(dim=1).float()
        return cls(
            num_blocks=len(hits),
            acceptance_length=round(1 + float(accepted.sum(dim=1).mean()), 4),
            per_position=[round(share, 4) for share in accepted.mean(dim=0).tolist()],
        )


def accepted_greedily(corrector: Corrector, blocks: Blocks) -> Acceptance:
    """Greedy drafts against the text that followed.

    On greedy text that is what the verifier would do; on sampled text it is an unbiased estimate
    of it for a one-hot draft.
    """
    token_ids = [corrector.correct(part.lattice()).token_ids.cpu() for part in _batches(blocks)]
    return Acceptance.of(torch.cat(token_ids) == blocks.gold_ids)


@torch.no_grad()
def expected_length(corrector: TrainableCorrector, blocks: Blocks) -> float:
    """The acceptance length that drafts sampled at temperature 1 have on text that is certain.

    It is the sum over positions of the probability of the gold prefix. Smooth in the weights,
    where greedy acceptance on a few texts jumps with every repeating one.
    """
    corrector.module.eval()
    device = next(corrector.module.parameters()).device
    total = 0.0
    for part in _batches(blocks):
        part = part.to(device)
        rows, positions = part.reachable().nonzero(as_tuple=True)
        log_probs = corrector.scores(part.lattice(), part.gold_ids, rows, positions).log_softmax(-1)
        ranks = part.gold_ranks()[rows, positions]
        found = ranks < log_probs.shape[1]
        gold = torch.full(part.gold_ids.shape, float("-inf"), device=device)
        gold[rows[found], positions[found]] = log_probs[found, ranks[found]]
        total += float(gold.cumsum(dim=1).exp().sum())
    return 1 + total / len(blocks)


def oracle(blocks: Blocks) -> Acceptance:
    """A corrector that always picks the right candidate when there is one."""
    return Acceptance.of(blocks.gold_ranks() < blocks.candidate_ids.shape[2])


def kinds_of_text(blocks: Blocks) -> dict[str, Blocks]:
    """Blocks by kind of text; a repeating answer flatters every drafter, hence without loops."""
    masks = {
        "greedy": blocks.temperature == 0,
        "sampled": blocks.temperature > 0,
        "greedy_no_loops": (blocks.temperature == 0) & ~blocks.loops,
        "sampled_no_loops": (blocks.temperature > 0) & ~blocks.loops,
    }
    masks["all"] = torch.ones_like(blocks.loops)
    return {kind: blocks[mask] for kind, mask in masks.items() if bool(mask.any())}


def _batches(blocks: Blocks) -> Iterator[Blocks]:
    for first in range(0, len(blocks), _ROWS_PER_BATCH):
        yield blocks[first : first + _ROWS_PER_BATCH]


def with_text(blocks: Blocks) -> Blocks:
    """The blocks that are followed by at least one token."""
    return blocks[blocks.gold_ids[:, 0] != END_OF_TEXT]
