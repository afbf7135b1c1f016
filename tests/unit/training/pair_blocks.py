"""A text in which pairs matter: every token fixes the next, the drafter knows only the marginals.

Tokens come in two families; a block follows one of them, the drafter proposes both at every
position and prefers a random one. The first position shows the family in the drafter's state.
"""

from __future__ import annotations

import torch

from dcoco_core.training.blocks import END_OF_TEXT, Blocks

HIDDEN, VOCAB, NUM_CANDIDATES, NUM_POSITIONS = 16, 40, 4, 4


def pair_blocks(num_blocks: int, seed: int) -> Blocks:
    generator = torch.Generator().manual_seed(seed)
    family = torch.randint(2, (num_blocks,), generator=generator)
    # Position t proposes tokens 4t, 4t + 1 (one per family) and two that never occur.
    candidates = torch.arange(NUM_POSITIONS * NUM_CANDIDATES).view(NUM_POSITIONS, -1)
    candidates = candidates.expand(num_blocks, -1, -1)
    gold = candidates.gather(2, family[:, None, None].expand(-1, NUM_POSITIONS, 1))[..., 0]
    logits = torch.randn(num_blocks, NUM_POSITIONS, 2, generator=generator) * 0.1
    logits = torch.cat([logits, torch.full_like(logits, -3.0)], dim=2)
    order = logits.argsort(dim=2, descending=True)
    hidden = torch.randn(num_blocks, NUM_POSITIONS, HIDDEN, generator=generator)
    hidden[:, 0, 0] = 6.0 * (2 * family - 1)
    gold[::7, 3] = END_OF_TEXT
    candidates = candidates.gather(2, order)
    return Blocks(
        anchor_ids=torch.full((num_blocks,), VOCAB - 1, dtype=torch.int32),
        candidate_ids=candidates.int(),
        log_probs=logits.gather(2, order).log_softmax(dim=2),
        hidden=hidden.bfloat16(),
        last_context=torch.randn(num_blocks, HIDDEN, generator=generator).bfloat16(),
        gold_ids=gold.int(),
        target_probs=(candidates == gold[..., None]).half() * 0.9,
        sequence_ids=torch.arange(num_blocks, dtype=torch.int32) // 8,
        temperature=(torch.arange(num_blocks) % 2) * 0.7,
        loops=torch.arange(num_blocks) % 5 == 0,
    )


def embedding() -> torch.Tensor:
    return 0.05 * torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(4))
