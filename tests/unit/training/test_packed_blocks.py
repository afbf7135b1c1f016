"""Blocks of packed passes are those of the serving path."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from dcoco_core.drafters.catalog import DRAFTERS, PROJECTIONS, DrafterSource
from dcoco_core.drafters.dflash.checkpoint import save_checkpoint
from dcoco_core.drafters.dflash.drafter import DrafterSettings
from dcoco_core.training.blocks import Blocks, concatenate, draft_blocks
from dcoco_core.training.packed_blocks import PackedDrafter
from dcoco_core.training.shards import Sequence, SequenceInfo
from tests.unit.drafters.dflash.networks import (
    CONFIG,
    HIDDEN,
    TAPS,
    VOCAB,
    SpecTarget,
    random_model,
)

TARGET = SpecTarget()


def recorded(number: int) -> Sequence:
    generator = torch.Generator().manual_seed(number)
    num_tokens = (5, 33, 14, 47)[number % 4]
    top = torch.rand(num_tokens, VOCAB, generator=generator).topk(32)
    return Sequence(
        info=SequenceInfo("random", 4, num_tokens, 0.7 * (number % 2), number == 2),
        token_ids=torch.randint(4, VOCAB, (num_tokens,), generator=generator).int(),
        taps=torch.randn(num_tokens, TAPS * HIDDEN, generator=generator).bfloat16(),
        hidden=torch.zeros(num_tokens, HIDDEN).bfloat16(),
        top_ids=top.indices.int(),
        top_log_probs=top.values.log_softmax(-1),
    )


def by_text(parts: list[Blocks]) -> Blocks:
    blocks = concatenate(parts)
    return blocks[blocks.sequence_ids.argsort(stable=True)]


@pytest.mark.parametrize("shift_label", [True, False])
@pytest.mark.parametrize("stride", [1, 3])
def test_packed_blocks_are_those_of_the_serving_path(tmp_path: Path, shift_label, stride):
    config = replace(CONFIG, shift_label=shift_label, draft_vocab_size=VOCAB - 6)
    vocab_ids = torch.arange(3, VOCAB - 3)
    save_checkpoint(tmp_path, config, dict(random_model().named_parameters()), vocab_ids)
    source = DrafterSource(tmp_path, TARGET)
    settings = DrafterSettings(8, max_positions=40, max_slots=4, dtype=torch.float32)
    projection = PROJECTIONS["dflash"](source)
    texts = [recorded(number) for number in range(10)]
    served = draft_blocks(
        DRAFTERS["dflash"](source, settings),
        projection,
        texts,
        num_positions=4,
        stride=stride,
        num_rows=4,
    )
    packed = PackedDrafter(tmp_path, TARGET, projection, settings)
    expected, found = by_text(list(served)), by_text(list(packed.blocks(texts, 4, stride)))
    assert len(found) == len(expected) > 40
    for field in fields(Blocks):
        ours, theirs = getattr(found, field.name), getattr(expected, field.name)
        assert ours.dtype == theirs.dtype, field.name
        if field.name in ("log_probs", "hidden", "last_context", "target_probs"):
            torch.testing.assert_close(ours.float(), theirs.float(), rtol=0.01, atol=1e-3)
        else:
            assert torch.equal(ours, theirs), field.name
