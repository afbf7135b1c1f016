"""A target, a drafter and a corrector small enough to know every probability by heart.

The target's next token depends on the two before it, through a table of 64 x 64 x 64 logits. Fakes
of the three Protocols stand on such tables; the verifier's decides with the real rules. Context
rows are (position, token), so that a hole or a stale row shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from dcoco_core.errors import CapacityError
from dcoco_core.sampling.draft_noise import draft_perturbation
from dcoco_core.sampling.top import top_candidates
from dcoco_core.types import (
    ContextGap,
    Draft,
    DraftRequest,
    Lattice,
    Request,
    Round,
    RowHeader,
    Verdict,
)
from dcoco_core.verification.commit import commit
from dcoco_core.verification.decide import DraftedRow, decide

VOCAB_SIZE = 64
NUM_CANDIDATES = 16
DRAFTERS = ("ar", "par", "rand", "bad")


def target_table(seed: int = 0) -> torch.Tensor:
    """[two back, one back, next] float32 logits."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((VOCAB_SIZE,) * 3, generator=generator) * 2.0


def draft_table(kind: str, target: torch.Tensor) -> torch.Tensor:
    """What a drafter believes, in the target table's layout.

    ar: the target with noise. par: knows only the token before. rand: knows nothing. bad: a faint
    idea of the target, drowned in noise.
    """
    generator = torch.Generator().manual_seed(99)
    noise = torch.randn(target.shape, generator=generator)
    if kind == "ar":
        return target + noise
    if kind == "par":
        return (target[0] + target[1])[None].expand_as(target).contiguous()
    if kind == "rand":
        return noise[0, 0].mul(2.0).expand_as(target).contiguous()
    assert kind == "bad", f"kind must be one of {DRAFTERS}"
    return target * 0.25 + noise


def text_logits(table: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """Logits of the token after `tokens`."""
    return table[tokens[-2] if len(tokens) > 1 else 0, tokens[-1]]


@dataclass
class _Open:
    """A request at the toy verifier."""

    request: Request
    tokens: list[int]
    num_context_sent: int = 0
    awaited_start: int | None = None

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt_ids)


@dataclass
class ToyVerifier:
    """Implements Verifier. `verify_calls` counts target passes."""

    table: torch.Tensor
    num_slots: int = 8
    verify_calls: int = 0
    sequences: dict[str, _Open] = field(default_factory=dict)

    @property
    def num_free_slots(self) -> int:
        return self.num_slots - len(self.sequences)

    def open(self, request: Request) -> None:
        if not self.num_free_slots:
            raise CapacityError("no slot is free")
        self.sequences[request.request_id] = _Open(request, list(request.prompt_ids))

    def close(self, request_id: str) -> None:
        self.sequences.pop(request_id, None)

    def step(self, draft: Draft) -> Round:
        self.verify_calls += 1
        for gap in draft.gaps:
            if gap.request_id in self.sequences:
                sequence = self.sequences[gap.request_id]
                sequence.num_context_sent, sequence.awaited_start = gap.num_rows, None
        blocks: dict[str, DraftedRow] = {}
        for index, drafted in enumerate(draft.headers):
            wanted = self.sequences.get(drafted.request_id)
            if wanted is not None and wanted.awaited_start == drafted.start:
                blocks[drafted.request_id] = _drafted_row(draft, index)
        for request_id, sequence in self.sequences.items():
            if sequence.awaited_start is None:
                nothing = torch.empty(0, dtype=torch.int64)
                start, sampling = len(sequence.tokens) - 1, sequence.request.sampling
                blocks[request_id] = DraftedRow(start, sampling, nothing)
        verdicts = self._decide(blocks)
        headers = [self._next_header(verdict.request_id) for verdict in verdicts]
        known = [header for header in headers if header is not None]
        return Round(tuple(verdicts), self._draft_request(known))

    def _decide(self, blocks: dict[str, DraftedRow]) -> list[Verdict]:
        logits = []
        for request_id, row in blocks.items():
            tokens = list(self.sequences[request_id].tokens)
            for token in [*row.draft_ids.tolist(), None]:
                logits.append(text_logits(self.table, tokens))
                tokens.append(token)
        if not logits:
            return []
        decisions = decide(torch.stack(logits), list(blocks.values()))
        verdicts = []
        for (request_id, row), decision in zip(blocks.items(), decisions, strict=True):
            sequence = self.sequences[request_id]
            request, draft_ids = sequence.request, row.draft_ids.tolist()
            committed = commit(draft_ids, decision, sequence.num_generated, request.limits)
            verdict = Verdict(
                request_id=request_id,
                generation=request.generation,
                start=len(sequence.tokens),
                token_ids=committed.token_ids,
                num_drafted=len(draft_ids) or None,
                num_accepted=committed.num_accepted,
                finish_reason=committed.finish_reason,
            )
            sequence.tokens.extend(committed.token_ids)
            sequence.awaited_start = None
            if committed.finish_reason is not None:
                self.close(request_id)
            verdicts.append(verdict)
        return verdicts

    def _next_header(self, request_id: str) -> RowHeader | None:
        sequence = self.sequences.get(request_id)
        if sequence is None:
            return None
        request, start = sequence.request, len(sequence.tokens) - 1
        num_left = request.limits.max_tokens - sequence.num_generated
        num_draft_tokens = min(request.speculation.num_draft_tokens, num_left - 1)
        if num_draft_tokens < 1:
            return None
        first, sequence.num_context_sent = sequence.num_context_sent, start
        sequence.awaited_start = start
        return RowHeader(
            request_id=request_id,
            generation=request.generation,
            start=start,
            anchor_id=sequence.tokens[-1],
            num_draft_tokens=num_draft_tokens,
            sampling=request.sampling,
            corrector=request.speculation.corrector,
            context_start=first,
            num_context_rows=start - first,
        )

    def _draft_request(self, headers: list[RowHeader]) -> DraftRequest:
        rows = [
            (position, self.sequences[header.request_id].tokens[position])
            for header in headers
            for position in range(header.context_start, header.start)
        ]
        return DraftRequest(tuple(headers), torch.tensor(rows, dtype=torch.float32).reshape(-1, 2))


def _drafted_row(draft: Draft, index: int) -> DraftedRow:
    header = draft.headers[index]
    length = min(header.num_draft_tokens, draft.token_ids.shape[1])
    ids, probs = draft.candidate_ids, draft.draft_probs
    return DraftedRow(
        start=header.start,
        sampling=header.sampling,
        draft_ids=draft.token_ids[index, :length],
        candidate_ids=None if ids is None else ids[index, :length],
        draft_probs=None if probs is None else probs[index, :length],
    )


@dataclass
class ToyDrafter:
    """Implements Drafter: the top candidates of every position.

    It knows the context and the anchor; what comes between the anchor and a position it takes from
    its own argmax path, as a block drafter does.
    """

    table: torch.Tensor
    contexts: dict[str, list[int]] = field(default_factory=dict)

    def draft(self, request: DraftRequest) -> Lattice:
        kept: list[RowHeader] = []
        gaps: list[ContextGap] = []
        first = 0
        for header in request.headers:
            rows = request.context[first : first + header.num_context_rows]
            first += header.num_context_rows
            context = self.contexts.setdefault(header.request_id, [])
            if header.context_start != len(context):
                gaps.append(ContextGap(header.request_id, header.generation, len(context)))
                continue
            assert rows[:, 0].tolist() == list(range(header.context_start, header.start))
            context.extend(int(token) for token in rows[:, 1])
            kept.append(header)
        return self._lattice(kept, tuple(gaps))

    def _lattice(self, headers: list[RowHeader], gaps: tuple[ContextGap, ...]) -> Lattice:
        num_positions = max((header.num_draft_tokens for header in headers), default=0)
        logits = torch.zeros((len(headers), num_positions, VOCAB_SIZE))
        last_context = torch.zeros((len(headers), 2))
        for row, header in enumerate(headers):
            tokens = [*self.contexts[header.request_id], header.anchor_id]
            if len(tokens) > 1:
                last_context[row] = torch.tensor([header.start - 1, tokens[-2]])
            for position in range(num_positions):
                logits[row, position] = text_logits(self.table, tokens)
                tokens.append(int(logits[row, position].argmax()))
        values, ids = top_candidates(logits.reshape(-1, VOCAB_SIZE), NUM_CANDIDATES)
        shape = (len(headers), num_positions, NUM_CANDIDATES)
        hidden = torch.zeros((len(headers), num_positions, 2))
        normalizer = logits.logsumexp(-1)
        ids, values = ids.reshape(shape), values.reshape(shape)
        return Lattice(tuple(headers), ids, values, normalizer, hidden, last_context, gaps)

    def release(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self.contexts.pop(request_id, None)


@dataclass
class ToyCorrector:
    """Implements Corrector: scores every candidate after the two tokens chosen before it."""

    table: torch.Tensor
    num_candidates: int = NUM_CANDIDATES

    def correct(self, lattice: Lattice) -> Draft:
        inv_temperature, perturbation, is_sampled = draft_perturbation(
            lattice.headers, lattice.candidate_ids
        )
        before = lattice.last_context[:, 1].long()
        last = torch.tensor([header.anchor_id for header in lattice.headers], dtype=torch.int64)
        tokens, probs = [], []
        for position in range(lattice.candidate_ids.shape[1]):
            candidates = lattice.candidate_ids[:, position]
            scores = self.table[before, last].gather(-1, candidates).double()
            scores = scores * inv_temperature[:, None]
            choice = (scores + perturbation[:, position]).argmax(-1, keepdim=True)
            one_hot = torch.zeros_like(scores).scatter(-1, choice, 1.0)
            probs.append(torch.where(is_sampled[:, None], scores.softmax(-1), one_hot))
            before, last = last, candidates.gather(-1, choice)[:, 0]
            tokens.append(last)
        if not tokens:
            empty = torch.empty((len(lattice.headers), 0), dtype=torch.int64)
            return Draft(lattice.headers, empty, gaps=lattice.gaps)
        return Draft(
            headers=lattice.headers,
            token_ids=torch.stack(tokens, 1),
            candidate_ids=lattice.candidate_ids,
            draft_probs=torch.stack(probs, 1).float(),
            gaps=lattice.gaps,
        )
