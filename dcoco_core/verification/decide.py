"""The one place that decides tokens: logits and drafts in, decisions out.

Whatever drafter and corrector proposed, the tokens follow the target's distribution (the target's
argmax at temperature 0). See docs/lossless.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from dcoco_core.sampling.filters import FilterKind, Filters, filter_kind, target_scores
from dcoco_core.sampling.noise import Stream, stream_keys
from dcoco_core.types import Rule, SamplingParams
from dcoco_core.verification.coupled import coupled_tokens
from dcoco_core.verification.decision import Decision
from dcoco_core.verification.greedy import greedy_tokens
from dcoco_core.verification.rejection import Proposal, RejectionKeys, rejection_tokens
from dcoco_core.verification.walk import walk


@dataclass(frozen=True, slots=True)
class DraftedRow:
    """One row to decide. Without proposals (L = 0) the row is decoded plainly.

    `start` is the anchor's absolute position: draft_ids[j] proposes position start + 1 + j.
    `candidate_ids` and `draft_probs` say what each draft token was drawn from; without them the
    draft is taken as deterministic, which is lossless for any draft that saw no target noise.
    """

    start: int
    sampling: SamplingParams
    draft_ids: torch.Tensor  # [L] int64
    candidate_ids: torch.Tensor | None = None  # [L, K] int64
    draft_probs: torch.Tensor | None = None  # [L, K] float


@dataclass(frozen=True, slots=True)
class RowBatch:
    """R rows of one sampling rule and one kind of filter, as columns."""

    first_logits: torch.Tensor  # [R] int64: where a row's logits begin
    starts: torch.Tensor  # [R] int64
    filters: Filters
    draft_ids: torch.Tensor  # [R, S + 1] int64, padded with -1


@dataclass(frozen=True, slots=True)
class DraftColumns:
    """What the draft tokens of a RowBatch were drawn from; zero probability where there is none."""

    candidate_ids: torch.Tensor  # [R, S + 1, K] int64
    draft_probs: torch.Tensor  # [R, S + 1, K] float64


def decide(target_logits: torch.Tensor, rows: Sequence[DraftedRow]) -> list[Decision]:
    """Decides every row; a row's decision does not depend on the other rows.

    Args:
        target_logits: [sum of (L + 1), V] float32, packed in row order: the j-th of a row is the
            target's prediction for position start + 1 + j.
        rows: What was drafted.

    Raises:
        ValueError: the number of logits does not fit the rows, or a row of logits is NaN.
    """
    lengths = [row.draft_ids.shape[0] for row in rows]
    if target_logits.shape[0] != sum(lengths) + len(rows):
        raise ValueError(
            f"{target_logits.shape[0]} rows of logits for {len(rows)} rows with "
            f"{sum(lengths)} draft tokens; {sum(lengths) + len(rows)} are needed"
        )
    if not rows:
        return []
    broken = (~target_logits.amax(-1).isfinite()).nonzero().flatten().tolist()
    if broken:
        raise ValueError(f"target logits without a finite maximum (NaN?) in packed rows {broken}")
    firsts = [0, *accumulate(length + 1 for length in lengths)]
    groups: dict[tuple[Rule, FilterKind], list[int]] = {}
    for index, row in enumerate(rows):
        rule = row.sampling.rule
        kind = FilterKind.UNFILTERED
        if rule is not Rule.GREEDY:
            kind = filter_kind(row.sampling, target_logits.shape[1])
        groups.setdefault((rule, kind), []).append(index)
    decisions: dict[int, Decision] = {}
    for (rule, kind), members in groups.items():
        chosen = [rows[index] for index in members]
        starts = [firsts[index] for index in members]
        outcome = _decide_group(target_logits, chosen, starts, rule, kind)
        decisions.update(zip(members, outcome, strict=True))
    return [decisions[index] for index in range(len(rows))]


def _decide_group(
    target_logits: torch.Tensor,
    rows: list[DraftedRow],
    firsts: list[int],
    rule: Rule,
    kind: FilterKind,
) -> list[Decision]:
    if rule is Rule.GREEDY:
        return _decide_greedy(target_logits, rows, firsts)
    device = target_logits.device
    sampling = [row.sampling for row in rows]
    batch = RowBatch(
        first_logits=torch.tensor(firsts, device=device),
        starts=torch.tensor([row.start for row in rows], device=device),
        filters=Filters.of(sampling, kind, device),
        draft_ids=_padded([row.draft_ids for row in rows], -1, device),
    )
    if rule is Rule.COUPLED:
        keys = stream_keys(sampling, Stream.TARGET, device)
        num_accepted, next_ids = decide_coupled(target_logits, batch, keys)
    else:
        rejection_keys = RejectionKeys(
            stream_keys(sampling, Stream.ACCEPT, device),
            stream_keys(sampling, Stream.RESIDUAL, device),
        )
        columns = _draft_columns(rows, batch.draft_ids)
        num_accepted, next_ids = decide_rejection(target_logits, batch, columns, rejection_keys)
    return [
        Decision(accepted, token)
        for accepted, token in zip(num_accepted.tolist(), next_ids.tolist(), strict=True)
    ]


def _decide_greedy(
    target_logits: torch.Tensor, rows: list[DraftedRow], firsts: list[int]
) -> list[Decision]:
    """One argmax over the logits of all greedy rows, then a walk over plain integers."""
    indices = [
        first + place
        for row, first in zip(rows, firsts, strict=True)
        for place in range(row.draft_ids.shape[0] + 1)
    ]
    if len(indices) < target_logits.shape[0]:
        target_logits = target_logits[torch.tensor(indices, device=target_logits.device)]
    tokens = iter(greedy_tokens(target_logits).tolist())
    decisions = []
    for row in rows:
        draft_ids = row.draft_ids.tolist()
        target_ids = [next(tokens) for _ in range(len(draft_ids) + 1)]
        num_accepted = 0
        while num_accepted < len(draft_ids) and draft_ids[num_accepted] == target_ids[num_accepted]:
            num_accepted += 1
        decisions.append(Decision(num_accepted, target_ids[num_accepted]))
    return decisions


def decide_coupled(
    target_logits: torch.Tensor, batch: RowBatch, target_keys: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """num_accepted [R] and next_ids [R] under the coupled rule."""

    def next_tokens(logits: torch.Tensor, alive: torch.Tensor, place: int) -> torch.Tensor:
        target = target_scores(logits, batch.filters.rows(alive))
        return coupled_tokens(target, target_keys[alive], batch.starts[alive] + 1 + place)

    return walk(target_logits, batch.first_logits, batch.draft_ids, next_tokens)


def decide_rejection(
    target_logits: torch.Tensor, batch: RowBatch, columns: DraftColumns, keys: RejectionKeys
) -> tuple[torch.Tensor, torch.Tensor]:
    """num_accepted [R] and next_ids [R] under the rejection rule."""

    def next_tokens(logits: torch.Tensor, alive: torch.Tensor, place: int) -> torch.Tensor:
        target = target_scores(logits, batch.filters.rows(alive))
        proposal = Proposal(
            batch.draft_ids[alive, place],
            columns.candidate_ids[alive, place],
            columns.draft_probs[alive, place],
        )
        return rejection_tokens(target, proposal, keys.rows(alive), batch.starts[alive] + 1 + place)

    return walk(target_logits, batch.first_logits, batch.draft_ids, next_tokens)


def _padded(rows: list[torch.Tensor], value: int, device: torch.device) -> torch.Tensor:
    """[R, S + 1], S the longest row: every row ends in at least one `value`."""
    table = torch.full((len(rows), max(row.shape[0] for row in rows) + 1), value, dtype=torch.int64)
    for index, row in enumerate(rows):
        table[index, : row.shape[0]] = row
    return table.to(device)


def _draft_columns(rows: list[DraftedRow], draft_ids: torch.Tensor) -> DraftColumns:
    """Candidates and probabilities as tables; one-hot for rows that bring none."""
    widths = [row.candidate_ids.shape[1] for row in rows if row.candidate_ids is not None]
    shape = (*draft_ids.shape, max(widths, default=1))
    candidate_ids = torch.zeros(shape, dtype=torch.int64, device=draft_ids.device)
    draft_probs = torch.zeros(shape, dtype=torch.float64, device=draft_ids.device)
    for index, row in enumerate(rows):
        length = row.draft_ids.shape[0]
        if row.candidate_ids is None or row.draft_probs is None:
            candidate_ids[index, :length, 0] = row.draft_ids
            draft_probs[index, :length, 0] = 1.0
        else:
            width = row.candidate_ids.shape[1]
            candidate_ids[index, :length, :width] = row.candidate_ids
            draft_probs[index, :length, :width] = row.draft_probs
    return DraftColumns(candidate_ids, draft_probs)
