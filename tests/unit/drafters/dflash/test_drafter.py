"""The drafter stage: cache discipline, independence of batch mates, and what it refuses."""

from dataclasses import replace

import pytest
import torch

from dcoco_core.drafters.dflash.drafter import DFlashDrafter, DrafterSettings
from dcoco_core.drafters.dflash.patterns import AttentionPattern
from dcoco_core.drafters.dflash.scoring import CandidateHead
from dcoco_core.errors import ConfigError
from dcoco_core.types import ContextGap, DraftRequest, Lattice
from tests.unit.drafters.dflash.networks import (
    CONFIG,
    HIDDEN,
    VOCAB,
    SpecTarget,
    context_rows,
    header,
    random_drafter,
    random_model,
    request,
    with_alignment,
)


def assert_same(one: Lattice, other: Lattice, rows: slice = slice(None)) -> None:
    length = one.candidate_ids.shape[1]
    assert torch.equal(one.candidate_ids, other.candidate_ids[rows, :length])
    for name in ("candidate_logits", "log_normalizer", "hidden", "last_context"):
        mine, theirs = getattr(one, name), getattr(other, name)[rows]
        theirs = theirs if name == "last_context" else theirs[:, :length]
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_shapes_and_order():
    lattice = random_drafter().draft(request(header(num_draft_tokens=4)))
    assert lattice.candidate_ids.shape == (1, 4, 5)
    assert lattice.hidden.shape == (1, 4, HIDDEN)
    assert (lattice.candidate_logits.diff(dim=-1) <= 0).all()
    assert (lattice.log_normalizer > lattice.candidate_logits[..., 0]).all()
    assert torch.equal(lattice.last_context[0], context_rows("a")[6])


@pytest.mark.parametrize("shift_label", [True, False])
def test_incremental_context_equals_context_sent_at_once(shift_label):
    config = with_alignment(shift_label)
    steps = random_drafter(config)
    steps.draft(request(header(start=5)))
    steps.draft(request(header(start=6, context_start=5)))
    late = steps.draft(request(header(start=10, context_start=6)))
    once = random_drafter(config).draft(request(header(start=10)))
    assert_same(late, once)


def test_cache_holds_committed_tokens_minus_the_anchor():
    drafter = random_drafter()
    for start, context_start in ((5, 0), (9, 5), (10, 9)):
        drafter.draft(request(header(start=start, context_start=context_start)))
        assert drafter.num_context_rows("a") == start
    drafter.release(["a", "never seen"])
    assert drafter.num_context_rows("a") == 0
    assert drafter.num_free_slots == 3


def test_resent_rows_roll_the_context_back():
    drafter = random_drafter()
    drafter.draft(request(header(start=12)))
    again = drafter.draft(request(header(start=8, context_start=6)))
    assert drafter.num_context_rows("a") == 8
    assert_same(again, random_drafter().draft(request(header(start=8))))


def test_batch_mates_change_nothing():
    mixed = random_drafter().draft(
        request(
            header("a", start=7, num_draft_tokens=2),
            header("b", start=20, num_draft_tokens=5, anchor_id=40),
            header("c", start=3, num_draft_tokens=3, anchor_id=9),
        )
    )
    assert mixed.candidate_ids.shape[1] == 5
    alone = [
        header("a", start=7, num_draft_tokens=2),
        header("b", start=20, num_draft_tokens=5, anchor_id=40),
        header("c", start=3, num_draft_tokens=3, anchor_id=9),
    ]
    for row, single in enumerate(alone):
        assert_same(random_drafter().draft(request(single)), mixed, slice(row, row + 1))


def test_context_changes_the_draft():
    rows = request(header(start=7))
    other = replace(rows, context=rows.context.flip(0))
    first, second = random_drafter().draft(rows), random_drafter().draft(other)
    assert not torch.allclose(first.hidden, second.hidden, atol=1e-3)


def test_missing_context_is_a_gap_and_the_batch_goes_on():
    drafter = random_drafter()
    drafter.draft(request(header("a", start=5)))
    lattice = drafter.draft(request(header("a", start=9, context_start=7), header("b", start=4)))
    assert lattice.gaps == (ContextGap("a", 0, 5),)
    assert [h.request_id for h in lattice.headers] == ["b"]
    assert drafter.num_context_rows("a") == 5
    resent = drafter.draft(request(header("a", start=9, context_start=5)))
    assert_same(resent, random_drafter().draft(request(header("a", start=9))))


def test_unknown_row_before_the_anchor_is_a_gap():
    drafter = random_drafter()
    drafter.draft(request(header(start=9)))
    lattice = drafter.draft(request(header(start=6, context_start=6)))
    assert lattice.gaps == (ContextGap("a", 0, 5),)


def test_same_round_again_needs_no_new_rows():
    drafter = random_drafter()
    first = drafter.draft(request(header(start=9)))
    assert_same(first, drafter.draft(request(header(start=9, context_start=9))))


def test_newer_generation_starts_afresh_and_older_ones_are_left_alone():
    drafter = random_drafter()
    drafter.draft(request(header(start=9, generation=1)))
    stale = drafter.draft(request(header(start=4, generation=0)))
    assert [h.num_draft_tokens for h in stale.headers] == [0]
    assert drafter.num_context_rows("a") == 9
    gap = drafter.draft(request(header(start=12, context_start=9, generation=2)))
    assert gap.gaps == (ContextGap("a", 2, 0),)
    drafter.draft(request(header(start=12, generation=2)))
    assert drafter.num_context_rows("a") == 12
    assert drafter.num_free_slots == 2


def test_without_a_free_slot_rows_are_decoded_plainly():
    drafter = random_drafter(max_slots=1)
    lattice = drafter.draft(request(header("a", num_draft_tokens=3), header("b")))
    assert [h.num_draft_tokens for h in lattice.headers] == [3, 0]
    assert lattice.candidate_ids.shape[:2] == (2, 3)
    drafter.release(["a"])
    later = drafter.draft(request(header("b", start=8, context_start=7)))
    assert later.gaps == (ContextGap("b", 0, 0),)


@pytest.mark.parametrize(("start", "drafted"), [(44, 4), (45, 0)])
def test_past_max_positions_rows_are_decoded_plainly(start, drafted):
    drafter = random_drafter(max_positions=48)
    lattice = drafter.draft(request(header(start=start, num_draft_tokens=4)))
    assert [h.num_draft_tokens for h in lattice.headers] == [drafted]
    assert drafter.num_free_slots == (2 if drafted else 3)


def test_a_row_may_ask_for_nothing():
    lattice = random_drafter().draft(
        request(header("a", num_draft_tokens=0), header("b", num_draft_tokens=2))
    )
    assert [h.num_draft_tokens for h in lattice.headers] == [0, 2]
    alone = random_drafter().draft(request(header("b", num_draft_tokens=2)))
    assert_same(alone, lattice, slice(1, 2))


def test_nothing_to_draft_is_an_empty_lattice():
    # A verifier that has no context yet does not know how wide a row is.
    lattice = random_drafter().draft(DraftRequest((), torch.empty(0, 0)))
    assert lattice.candidate_ids.shape == (0, 0, 5)


def test_reduced_vocabulary_gives_target_ids():
    chosen = torch.tensor([2, 5, 8, 13, 50, 77, 90])
    target, model = SpecTarget(), random_model()
    settings = DrafterSettings(num_candidates=7, max_positions=48, dtype=torch.float32)
    head = CandidateHead(target.lm_head[chosen], chosen, 7, CONFIG)
    reduced = DFlashDrafter(model, target.embedding, head, settings).draft(request(header()))
    full = CandidateHead(target.lm_head, None, VOCAB, CONFIG)
    whole = DFlashDrafter(model, target.embedding, full, replace(settings, num_candidates=VOCAB))
    lattice = whole.draft(request(header()))
    for position in range(4):
        ids = lattice.candidate_ids[0, position]
        kept = ids[torch.isin(ids, chosen)]
        assert torch.equal(kept, reduced.candidate_ids[0, position])


@pytest.mark.parametrize(
    "pattern", [AttentionPattern(True), AttentionPattern(False, 4), AttentionPattern(True, 4)]
)
def test_patterns_limit_what_is_seen(pattern):
    config = replace(CONFIG, attention=(pattern, pattern))
    drafter = random_drafter(config)
    near = drafter.draft(request(header(start=20)))
    rows = request(header(start=20))
    rows.context[:10] = 0.0  # over two layers of window 4 the anchor sees at most 6 rows back
    far = random_drafter(config).draft(rows)
    same = torch.allclose(near.hidden[:, 0], far.hidden[:, 0], atol=1e-5)
    assert same == (pattern.window is not None)
    shorter = random_drafter(config).draft(request(header(start=20, num_draft_tokens=2)))
    same = torch.allclose(near.hidden[:, 0], shorter.hidden[:, 0], atol=1e-5)
    assert same == pattern.is_causal


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({}, {"num_draft_tokens": 6}, "6 is more than the 5 proposals of a block of 6"),
        ({}, {"max_positions": 65}, "max_positions 65 is more than the 64"),
        ({}, {"num_candidates": VOCAB + 1}, "num_candidates must be 1 to 96"),
        ({}, {"block_size": 1}, "block_size must be at least 2"),
    ],
)
def test_impossible_settings_are_refused(changes, settings, message):
    with pytest.raises(ConfigError, match=message):
        random_drafter(replace(CONFIG, **changes), **settings)


def test_block_size_can_be_raised():
    drafter = random_drafter(block_size=16)
    assert drafter.max_draft_tokens == 15
    lattice = drafter.draft(request(header(num_draft_tokens=15)))
    assert lattice.candidate_ids.shape == (1, 15, 5)


def test_sampling_from_the_anchor_proposes_a_whole_block():
    drafter = random_drafter(replace(CONFIG, samples_all=True))
    assert drafter.max_draft_tokens == 6
    with pytest.raises(ConfigError, match="asks for 7 proposals"):
        drafter.draft(request(header(num_draft_tokens=7)))


def test_inconsistent_requests_are_errors():
    good = request(header(start=7))
    wrong = replace(header(start=8), num_context_rows=7)
    with pytest.raises(ValueError, match="do not end before the anchor"):
        random_drafter().draft(replace(good, headers=(wrong,)))
    with pytest.raises(ValueError, match=r"context is \[7, 32\], .* make it \[6, 32\]"):
        random_drafter().draft(replace(good, headers=(header(start=6),)))
    with pytest.raises(ValueError, match=r"context is \[7, 30\]"):
        random_drafter().draft(replace(good, context=good.context[:, :30]))
