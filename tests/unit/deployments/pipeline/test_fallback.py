"""Every row that was sent comes back, whatever the path does."""

import pytest
import torch

from dcoco_core.drafts import merge_drafts
from dcoco_core.types import Draft
from deployments.pipeline.fallback import complete, undrafted
from tests.unit.deployments.pipeline import lattices


def test_a_complete_draft_stays_as_it_is() -> None:
    draft = lattices.draft(is_sampled=True)
    assert complete(draft, lattices.HEADERS) is draft


def test_missing_rows_become_plain_ones() -> None:
    full = lattices.draft(is_sampled=False)
    part = Draft(full.headers[:1], full.token_ids[:1])
    draft = complete(part, lattices.HEADERS)
    assert [header.request_id for header in draft.headers] == ["a", "b", "c"]
    assert [header.num_draft_tokens for header in draft.headers] == [3, 0, 0]


def test_a_draft_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="3 headers, but 2 drafts"):
        complete(Draft(lattices.HEADERS, torch.zeros((2, 3), dtype=torch.int64)), lattices.HEADERS)


def test_plain_rows_keep_promising_nothing_when_merged_with_longer_ones() -> None:
    merged = merge_drafts([lattices.draft(is_sampled=True), undrafted(lattices.HEADERS)])
    assert merged.token_ids.shape == (6, 3)
    assert [header.num_draft_tokens for header in merged.headers] == [3, 3, 3, 0, 0, 0]
