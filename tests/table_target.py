"""A target whose next-token distribution is a table over its last two tokens.

Its KV cache holds the tokens themselves, so a wrong rollback, position or slot changes the
output. Its taps are (position, token), so a test can read which context rows were sent.
"""

from __future__ import annotations

import torch

from dcoco_core.target.interface import PackedRows, TargetOutput, TargetSpec
from dcoco_core.types import (
    ContextGap,
    Draft,
    DraftRequest,
    Lattice,
    Limits,
    Request,
    RowHeader,
    SamplingParams,
    Speculation,
)

VOCAB = 24


class TableTarget:
    """Implements TargetModel; hidden states are the logits themselves."""

    def __init__(self, seed: int = 0, max_positions: int = 128) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn((VOCAB, VOCAB, VOCAB), generator=generator) * 2
        self.spec = TargetSpec("table", "TableTarget", VOCAB, 1, VOCAB, max_positions)
        self.embedding = torch.eye(VOCAB)
        self.lm_head = torch.eye(VOCAB)
        self.num_forwards = 0

    def new_cache(self, num_slots: int, max_length: int) -> torch.Tensor:
        return torch.full((num_slots, max_length), -1, dtype=torch.int64)

    def forward(
        self,
        token_ids: torch.Tensor,
        rows: PackedRows,
        cache: torch.Tensor,
        tap_layer_ids: tuple[int, ...],
    ) -> TargetOutput:
        self.num_forwards += 1
        hidden, taps, first = [], [], 0
        for slot, start, count in zip(rows.slots, rows.starts, rows.counts, strict=True):
            tokens = token_ids[first : first + count]
            cache[slot, start : start + count] = tokens
            cache[slot, start + count :] = -1
            for position in range(start, start + count):
                assert cache[slot, : position + 1].min() >= 0, "a hole in the cache"
                previous = cache[slot, position - 1] if position else 0
                hidden.append(self.table[previous, cache[slot, position]])
                taps.append(torch.tensor([position, int(cache[slot, position])]))
            first += count
        width = 2 if tap_layer_ids else 0
        return TargetOutput(torch.stack(hidden), torch.stack(taps).float()[:, :width])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    def greedy(self, prompt_ids: tuple[int, ...], num_tokens: int) -> tuple[int, ...]:
        """The text plain greedy decoding must give."""
        tokens = list(prompt_ids)
        for _ in range(num_tokens):
            previous = tokens[-2] if len(tokens) > 1 else 0
            tokens.append(int(self.table[previous, tokens[-1]].argmax()))
        return tuple(tokens[len(prompt_ids) :])


class TapsAsContext:
    """A ContextProjection that hands the taps on: context rows are (position, token)."""

    target_layer_ids = (0,)
    fingerprint = "taps"

    def __call__(self, taps: torch.Tensor) -> torch.Tensor:
        return taps


class TableDrafter:
    """Drafts from the table: right with probability `skill`, by a hash of the position.

    Keeps the context rows it was sent and checks them: they must be the committed tokens of
    positions 0, 1, 2, ... without a hole. `lose` makes it forget, as a restarted drafter would.
    """

    def __init__(self, target: TableTarget, skill: float = 1.0, num_candidates: int = 4) -> None:
        self._target, self._skill, self._num_candidates = target, skill, num_candidates
        self.contexts: dict[str, list[int]] = {}
        self.largest_batch = 0

    def draft(self, request: DraftRequest) -> Lattice:
        kept: list[RowHeader] = []
        gaps: list[ContextGap] = []
        first = 0
        for header in request.headers:
            rows = request.context[first : first + header.num_context_rows].float()
            first += header.num_context_rows
            context = self.contexts.setdefault(header.request_id, [])
            if header.context_start > len(context):
                gaps.append(ContextGap(header.request_id, header.generation, len(context)))
                continue
            del context[header.context_start :]
            assert rows[:, 0].tolist() == list(range(header.context_start, header.start))
            context.extend(int(token) for token in rows[:, 1])
            kept.append(header)
        self.largest_batch = max(self.largest_batch, len(kept))
        return self._lattice(kept, gaps)

    def _lattice(self, headers: list[RowHeader], gaps: list[ContextGap]) -> Lattice:
        num_positions = max((header.num_draft_tokens for header in headers), default=0)
        shape = (len(headers), num_positions, self._num_candidates)
        ids, logits = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape)
        for row, header in enumerate(headers):
            tokens = [*self.contexts[header.request_id], header.anchor_id]
            for position in range(header.num_draft_tokens):
                previous = tokens[-2] if len(tokens) > 1 else 0
                scores = self._target.table[previous, tokens[-1]].clone()
                if (header.start + position) * 7919 % 100 >= self._skill * 100:
                    scores = -scores
                top = scores.topk(self._num_candidates)
                ids[row, position], logits[row, position] = top.indices, top.values
                tokens.append(int(top.indices[0]))
        return Lattice(
            headers=tuple(headers),
            candidate_ids=ids,
            candidate_logits=logits,
            log_normalizer=logits.logsumexp(-1) if num_positions else torch.zeros(shape[:2]),
            hidden=torch.zeros((*shape[:2], 1)),
            last_context=torch.zeros((len(headers), 1)),
            gaps=tuple(gaps),
        )

    def release(self, request_ids: object) -> None:
        for request_id in list(request_ids):  # type: ignore[call-overload]
            self.contexts.pop(request_id, None)

    def lose(self) -> None:
        """Forgets every request, as a restarted drafter would."""
        self.contexts.clear()


class TopOne:
    """The uncorrected path: the first candidate of every position."""

    num_candidates = 4

    def correct(self, lattice: Lattice) -> Draft:
        return Draft(lattice.headers, lattice.candidate_ids[..., 0], gaps=lattice.gaps)


def make_request(
    name: str = "r",
    prompt_ids: tuple[int, ...] = (1, 2, 3),
    *,
    max_tokens: int = 20,
    stop_ids: tuple[int, ...] = (),
    num_draft_tokens: int = 0,
    sampling: SamplingParams | None = None,
) -> Request:
    """A request with short defaults."""
    return Request(
        request_id=name,
        prompt_ids=prompt_ids,
        limits=Limits(max_tokens, frozenset(stop_ids)),
        sampling=sampling or SamplingParams(),
        speculation=Speculation(num_draft_tokens),
    )
