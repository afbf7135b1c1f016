"""Blocks drafted along recorded text, with a drafter that proposes from what it was sent."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dcoco_core.errors import CheckpointError, ConfigError
from dcoco_core.training.blocks import END_OF_TEXT, Blocks, concatenate, draft_blocks
from dcoco_core.training.shards import Sequence, SequenceInfo
from dcoco_core.types import ContextGap, DraftRequest, Lattice
from tests.unit.training.pair_blocks import pair_blocks

HIDDEN, NUM_CANDIDATES, NUM_POSITIONS = 4, 3, 3


def recorded(number: int, num_prompt: int, num_tokens: int) -> Sequence:
    """Token t of text n is 100 n + t; its tap says so too. The target is sure of the next one."""
    token_ids = 100 * number + torch.arange(num_tokens)
    top_ids = torch.stack([token_ids + 1, token_ids + 50], dim=1)
    return Sequence(
        info=SequenceInfo("test", num_prompt, num_tokens, 0.7 * (number % 2), number == 2),
        token_ids=token_ids.int(),
        taps=token_ids[:, None].expand(-1, HIDDEN).bfloat16(),
        hidden=torch.zeros(num_tokens, HIDDEN).bfloat16(),
        top_ids=top_ids.int(),
        top_log_probs=torch.tensor([[0.9, 0.1]]).log().expand(num_tokens, -1),
    )


class Identity:
    target_layer_ids = (1,)
    fingerprint = "drafter-a"

    def __call__(self, taps):
        return taps


class CheckingDrafter:
    """Proposes the true continuation second, and checks that it was sent the right context."""

    def __init__(self, drop: bool = False, longest: int = 1000) -> None:
        self.context: dict[str, list[float]] = {}
        self.released: list[str] = []
        self.most_rows = 0
        self._drop = drop
        self._longest = longest

    def draft(self, request: DraftRequest) -> Lattice:
        rows = request.context.split([h.num_context_rows for h in request.headers])
        self.most_rows = max(self.most_rows, len(rows))
        for header, chunk in zip(request.headers, rows, strict=True):
            held = self.context.setdefault(header.request_id, [])
            assert len(held) == header.context_start
            held += chunk[:, 0].tolist()
            first = header.anchor_id - header.start
            expected = torch.arange(first, header.anchor_id).bfloat16().tolist()
            assert held == expected
        anchors = torch.tensor([h.anchor_id for h in request.headers])
        gold = anchors[:, None] + 1 + torch.arange(NUM_POSITIONS)
        candidates = torch.stack([gold + 7, gold, gold + 50], dim=-1)
        gaps = (ContextGap("x", 0, 0),) if self._drop else ()
        return Lattice(
            headers=tuple(
                h if h.start < self._longest else dataclasses.replace(h, num_draft_tokens=0)
                for h in request.headers
            ),
            candidate_ids=candidates,
            candidate_logits=torch.tensor([2.0, 1.0, 0.0]).expand(candidates.shape),
            log_normalizer=torch.full(gold.shape, 3.0),
            hidden=gold[..., None].expand(-1, -1, HIDDEN).float(),
            last_context=(anchors - 1)[:, None].expand(-1, HIDDEN).float(),
            gaps=gaps,
        )

    def release(self, request_ids) -> None:
        self.released += request_ids


TEXTS = [recorded(0, 2, 9), recorded(1, 3, 5), recorded(2, 4, 12), recorded(3, 5, 6)]


def draft_all(drafter, stride=1, num_rows=2):
    parts = draft_blocks(
        drafter,
        Identity(),
        TEXTS,
        num_positions=NUM_POSITIONS,
        stride=stride,
        num_rows=num_rows,
    )
    return concatenate(list(parts))


@pytest.mark.parametrize("stride", [1, 3])
def test_every_stride_th_response_token_is_an_anchor(stride):
    drafter = CheckingDrafter()
    blocks = draft_all(drafter, stride)
    anchors = sorted(zip(blocks.sequence_ids.tolist(), blocks.anchor_ids.tolist(), strict=True))
    assert anchors == [
        (number, 100 * number + start)
        for number, text in enumerate(TEXTS)
        for start in range(text.info.num_prompt, text.info.num_tokens - 1, stride)
    ]
    assert drafter.most_rows == 2
    # The last text's response is its anchor alone, so it is never opened.
    assert sorted(drafter.released) == ["text-0", "text-1", "text-2"]


def test_gold_tokens_and_target_probs_belong_to_the_candidates():
    blocks = draft_all(CheckingDrafter())
    for row in range(len(blocks)):
        text = TEXTS[int(blocks.sequence_ids[row])]
        anchor = int(blocks.anchor_ids[row])
        end = int(text.token_ids[-1])
        for position in range(NUM_POSITIONS):
            following = anchor + 1 + position
            gold = int(blocks.gold_ids[row, position])
            assert gold == (following if following <= end else END_OF_TEXT)
            wanted = [0.0, 0.9, 0.0] if gold != END_OF_TEXT else [0.0] * 3
            assert blocks.target_probs[row, position].tolist() == pytest.approx(wanted, abs=1e-3)
    # top_ids of the row of token t are t + 1 and t + 50; the candidate t + 51 is in neither.
    assert set(blocks.gold_ranks()[blocks.gold_ids != END_OF_TEXT].tolist()) == {1}
    assert set(blocks.gold_ranks()[blocks.gold_ids == END_OF_TEXT].tolist()) == {NUM_CANDIDATES}
    assert torch.equal(blocks.reachable(), blocks.gold_ids != END_OF_TEXT)
    assert blocks.loops.tolist() == (blocks.sequence_ids == 2).tolist()
    torch.testing.assert_close(blocks.log_probs[0, 0], torch.tensor([-1.0, -2.0, -3.0]))


def test_a_dropped_row_is_an_error():
    with pytest.raises(ConfigError, match="dropped 1 of 2 rows"):
        draft_all(CheckingDrafter(drop=True))


def test_declined_anchors_are_left_out():
    blocks = draft_all(CheckingDrafter(longest=5))
    expected = [2, 3, 4, 103, 204]
    assert sorted(blocks.anchor_ids.tolist()) == expected
    assert len(blocks.candidate_ids) == len(expected)


def test_save_and_load(tmp_path):
    blocks = pair_blocks(30, 1)
    path = tmp_path / "kept" / "blocks.safetensors"
    blocks.save(path, "drafter-a")
    loaded = Blocks.load(path, "drafter-a")
    for field in dataclasses.fields(Blocks):
        assert torch.equal(getattr(loaded, field.name), getattr(blocks, field.name))
    with pytest.raises(CheckpointError, match="drafted by drafter-a, the drafter is drafter-b"):
        Blocks.load(path, "drafter-b")
    path.write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="cannot read"):
        Blocks.load(path, "drafter-a")


def test_a_lattice_is_what_a_drafter_sends_for_greedy_requests():
    lattice = pair_blocks(3, 1)[1:].lattice()
    assert lattice.candidate_ids.dtype == torch.int64
    assert [h.anchor_id for h in lattice.headers] == [39, 39]
    assert lattice.headers[0].sampling.temperature == 0


def test_a_padded_block_says_how_long_it_was_drafted():
    lattice = pair_blocks(3, 1).padded(7).lattice()
    assert [header.num_draft_tokens for header in lattice.headers] == [4, 4, 4]
    assert lattice.candidate_ids.shape == (3, 7, 4)


def test_fewer_candidates_are_the_best_ones():
    blocks = pair_blocks(30, 1)
    fewer = blocks.best(2)
    assert torch.equal(fewer.candidate_ids, blocks.candidate_ids[..., :2])
    assert fewer.log_probs.shape == fewer.target_probs.shape == (30, 4, 2)
    ranks = blocks.gold_ranks()
    assert torch.equal(fewer.gold_ranks(), ranks.clamp(max=2))
    assert torch.equal(blocks.best(1).gold_ranks(), ranks.clamp(max=1))
