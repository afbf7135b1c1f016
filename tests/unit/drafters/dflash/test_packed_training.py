"""One anchor of a packed training batch and the same block drafted incrementally agree."""

from dataclasses import replace

import pytest
import torch

from dcoco_core.drafters.dflash.drafter import DFlashDrafter, DrafterSettings
from dcoco_core.drafters.dflash.patterns import AttentionPattern
from dcoco_core.drafters.dflash.scoring import CandidateHead
from dcoco_core.training.drafter_batch import build_batch
from dcoco_core.training.drafter_eval import run_blocks
from dcoco_core.training.shards import Sequence, SequenceInfo
from dcoco_core.types import DraftRequest
from tests.unit.drafters.dflash.networks import (
    CONFIG,
    HIDDEN,
    VOCAB,
    SpecTarget,
    header,
    random_model,
    with_alignment,
)

CONFIGS = {
    "anchor predicts": with_alignment(True),
    "same position": with_alignment(False),
    "sliding and full": replace(
        CONFIG, attention=(AttentionPattern(is_causal=True, window=5), AttentionPattern())
    ),
}


def recorded(length: int, seed: int) -> Sequence:
    generator = torch.Generator().manual_seed(seed)
    top = torch.stack([torch.randperm(VOCAB, generator=generator)[:32] for _ in range(length)])
    return Sequence(
        SequenceInfo("test", 4, length, 0.0, loops=False),
        token_ids=torch.randint(4, VOCAB, (length,), generator=generator).int(),
        taps=torch.randn((length, 2 * HIDDEN), generator=generator),
        hidden=torch.zeros(length, HIDDEN),
        top_ids=top.int(),
        top_log_probs=torch.randn((length, 32), generator=generator).log_softmax(-1),
    )


@pytest.mark.parametrize("name", list(CONFIGS))
def test_packed_blocks_equal_incremental_drafts(name):
    config = CONFIGS[name]
    model, target = random_model(config), SpecTarget()
    sequences = [recorded(30, 0), recorded(21, 1)]
    anchors = [torch.tensor([5, 9, 10, 24]), torch.tensor([4, 17])]
    length = 3
    batch = build_batch(sequences, anchors, config, config.num_inputs(length), gamma=4.0)
    packed, _ = run_blocks(model, batch, target.embedding)
    packed = packed if config.shift_label else packed[:, :, 1:]

    head = CandidateHead(target.lm_head, None, 8, config)
    settings = DrafterSettings(num_candidates=8, max_positions=48, dtype=torch.float32)
    drafter = DFlashDrafter(model, target.embedding, head, settings)
    for row, sequence in enumerate(sequences):
        rows, held = model.project(sequence.taps), 0
        for block, anchor in enumerate(anchors[row].tolist()):
            drafted = drafter.draft(
                DraftRequest(
                    (
                        header(
                            str(row),
                            start=anchor,
                            context_start=held,
                            num_draft_tokens=length,
                            anchor_id=int(sequence.token_ids[anchor]),
                        ),
                    ),
                    rows[held:anchor],
                )
            )
            held = anchor
            torch.testing.assert_close(drafted.hidden[0], packed[row, block], atol=1e-5, rtol=1e-4)
            scored = head(packed[row, block])
            torch.testing.assert_close(drafted.candidate_logits[0], scored.logits)
            assert torch.equal(drafted.candidate_ids[0], scored.ids)


@pytest.mark.parametrize("shift_label", [True, False])
def test_labels_are_the_tokens_that_follow(shift_label):
    config = with_alignment(shift_label)
    sequence = recorded(12, 0)
    batch = build_batch([sequence], [torch.tensor([5, 9])], config, config.num_inputs(4), gamma=2.0)
    first = 0 if shift_label else 1
    labels = batch.label_ids[0, :, first:]
    tokens = sequence.token_ids.tolist()
    assert labels.tolist() == [tokens[6:10], [*tokens[10:12], -1, -1]]
    weights = batch.weights[0, :, first:]
    expected = torch.exp(-torch.arange(4) / 2.0)
    torch.testing.assert_close(weights[0], expected)
    torch.testing.assert_close(weights[1], expected * torch.tensor([1, 1, 0, 0]))
    assert shift_label or (batch.weights[..., 0] == 0).all()
    # The target's recorded distribution at t - 1 is about the token at t.
    assert torch.equal(batch.top_ids[0, 0, first:].int(), sequence.top_ids[5:9])
    mask = config.mask_token_id
    assert batch.input_ids[0, : config.num_inputs(4)].tolist() == [
        tokens[5],
        *[mask] * (config.num_inputs(4) - 1),
    ]


def test_context_from_the_anchor_on_is_never_seen():
    sequence = recorded(20, 0)
    changed = replace(sequence, taps=sequence.taps.clone())
    changed.taps[8:] += 1.0
    model, target = random_model(), SpecTarget()
    results = [
        run_blocks(
            model,
            build_batch([s], [torch.tensor([8, 12])], CONFIG, 4, gamma=1.0),
            target.embedding,
        )[0]
        for s in (sequence, changed)
    ]
    torch.testing.assert_close(results[0][0, 0], results[1][0, 0])
    assert not torch.allclose(results[0][0, 1], results[1][0, 1], atol=1e-3)
