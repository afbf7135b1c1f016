"""The copy loss asks for the right context rows, and training on it finds them."""

from __future__ import annotations

import torch

from dcoco_core.drafters.dflash.model import KeyValue
from dcoco_core.training.copy_loss import CopyingAttend, copied_rows
from dcoco_core.training.drafter_batch import build_batch
from dcoco_core.training.shards import Sequence, SequenceInfo
from tests.unit.drafters.dflash.networks import CONFIG, HIDDEN, TAPS

TOKENS = [5, 6, 7, 8, 9, 5, 6, 7, 5, 6, 4]


def text(tokens: list[int], num_prompt: int) -> Sequence:
    count = len(tokens)
    generator = torch.Generator().manual_seed(1)
    return Sequence(
        SequenceInfo("own", num_prompt, count, 0.0, loops=False),
        torch.tensor(tokens, dtype=torch.int32),
        torch.randn(count, TAPS * HIDDEN, generator=generator),
        torch.randn(count, HIDDEN, generator=generator),
        torch.zeros(count, 32, dtype=torch.int32),
        torch.zeros(count, 32),
    )


def test_which_rows_are_copied():
    """Row 5 of the text is the anchor: what follows it stood at 0, 1, 2 and changes at row 8."""
    batch = build_batch([text(TOKENS, 3)], [torch.tensor([5, 8])], CONFIG, 4, gamma=4.0)
    rows = copied_rows(batch)[0].view(2, 4, len(TOKENS))
    found = [[row.nonzero()[:, 0].tolist() for row in block] for block in rows]
    asked = int(CONFIG.shift_label)
    assert asked, "the block's rows below are those of an anchor that predicts"
    # 5 -> 6 and 6 -> 7 stand before row 5; 7 -> 5 does not.
    assert found[0] == [[0], [1], [], [0]]
    # Before row 8: 5 -> 6 twice. 6 -> 4 never, and the text ends there.
    assert found[1] == [[0, 5], [], [], []]


def test_the_loss_is_the_attention_that_is_missing():
    batch = build_batch([text(TOKENS, 3)], [torch.tensor([8])], CONFIG, 2, gamma=4.0)
    num_context, size = len(TOKENS), 4
    keys = torch.zeros(1, 2, num_context, size)
    context = [KeyValue(keys, keys)]
    attend = CopyingAttend(context, batch.masks, batch)
    nothing = torch.zeros(1, 4, 2, size), torch.zeros(1, 2, 2, size), torch.zeros(1, 2, 2, size)
    attend(0, *nothing)
    # Uniform attention over 8 context rows and 2 of the block: 2 of 10 are right.
    torch.testing.assert_close(attend.loss(), torch.tensor(5.0).log())
    keys[:, 0, [0, 5]] = 10.0
    attend = CopyingAttend(context, batch.masks, batch)
    attend(0, torch.ones(1, 4, 2, size), *nothing[1:])
    assert attend.loss() < 1e-6


def test_a_text_without_repeats_has_no_copy_loss():
    batch = build_batch([text(list(range(4, 14)), 3)], [torch.tensor([5])], CONFIG, 3, gamma=4.0)
    keys = torch.zeros(1, 2, 10, 4)
    attend = CopyingAttend([KeyValue(keys, keys)], batch.masks, batch)
    attend(0, torch.zeros(1, 4, 3, 4), torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))
    assert float(attend.loss()) == 0.0
