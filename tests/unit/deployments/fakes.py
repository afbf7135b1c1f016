"""A verifier and a draft path whose text is a formula, so that any loss or mix-up shows."""

import asyncio
from collections.abc import Sequence

import torch

from dcoco_core.errors import CapacityError, RequestError
from dcoco_core.types import (
    ContextGap,
    Draft,
    DraftRequest,
    FinishReason,
    Limits,
    Request,
    Round,
    RowHeader,
    SamplingParams,
    Speculation,
    Verdict,
)

VOCABULARY = 1000


def token_at(first_prompt_id: int, position: int) -> int:
    return (31 * first_prompt_id + 7 * position) % VOCABULARY


def expected_text(request: Request) -> list[int]:
    start = len(request.prompt_ids)
    positions = range(start, start + request.limits.max_tokens)
    return [token_at(request.prompt_ids[0], position) for position in positions]


def make_request(name: str, prompt_id: int = 1, max_tokens: int = 12, drafts: int = 4) -> Request:
    return Request(
        name, (prompt_id, 2, 3), Limits(max_tokens), SamplingParams(), Speculation(drafts)
    )


class FormulaVerifier:
    """One prefill step, then the formula; a draft is accepted while it agrees with it."""

    def __init__(self, num_slots: int) -> None:
        self.num_free_slots = num_slots
        self.num_steps = 0
        self.rows_per_step: list[int] = []
        self.failure: Exception | None = None
        self._requests: dict[str, Request] = {}
        self._tokens: dict[str, list[int]] = {}
        self._in_flight: set[str] = set()

    @property
    def open_ids(self) -> set[str]:
        return set(self._requests)

    def open(self, request: Request) -> None:
        if request.prompt_ids[0] >= VOCABULARY:
            raise RequestError("token id out of range", field="prompt")
        if not self.num_free_slots:
            raise CapacityError("full")
        assert request.request_id not in self._requests
        self.num_free_slots -= 1
        self._requests[request.request_id] = request
        self._tokens[request.request_id] = list(request.prompt_ids)

    def close(self, request_id: str) -> None:
        if self._requests.pop(request_id, None) is not None:
            self.num_free_slots += 1
            del self._tokens[request_id]
            self._in_flight.discard(request_id)

    def step(self, draft: Draft) -> Round:
        self.num_steps += 1
        if self.failure is not None:
            raise self.failure
        self._in_flight -= {gap.request_id for gap in draft.gaps}
        blocks: dict[str, list[int] | None] = {
            name: None for name in self._requests if name not in self._in_flight
        }
        for row, header in enumerate(draft.headers):
            tokens = self._tokens.get(header.request_id)
            if tokens is None or header.start != len(tokens) - 1:
                continue
            if header.generation != self._requests[header.request_id].generation:
                continue
            self._in_flight.discard(header.request_id)
            proposals = draft.token_ids[row, : header.num_draft_tokens].tolist()
            blocks[header.request_id] = proposals or None
        self.rows_per_step.append(len(blocks))
        verdicts = [self._decide(name, proposals) for name, proposals in blocks.items()]
        for verdict in verdicts:
            if verdict.finish_reason:
                self.close(verdict.request_id)
        headers = tuple(filter(None, (self._header(v.request_id) for v in verdicts)))
        self._in_flight |= {header.request_id for header in headers}
        return Round(tuple(verdicts), DraftRequest(headers, torch.zeros(len(headers), 2)))

    def _decide(self, name: str, proposals: list[int] | None) -> Verdict:
        request, tokens = self._requests[name], self._tokens[name]
        start = len(tokens)
        accepted = 0
        for proposal in proposals or []:
            if proposal != token_at(request.prompt_ids[0], start + accepted):
                break
            accepted += 1
        left = request.limits.max_tokens - (start - len(request.prompt_ids))
        count = min(accepted + 1, left)
        new = [token_at(request.prompt_ids[0], start + k) for k in range(count)]
        tokens.extend(new)
        return Verdict(
            name,
            request.generation,
            start,
            tuple(new),
            None if proposals is None else len(proposals),
            min(accepted, count),
            FinishReason.LENGTH if count == left else None,
        )

    def _header(self, name: str) -> RowHeader | None:
        request = self._requests.get(name)
        if request is None:
            return None
        tokens = self._tokens[name]
        left = request.limits.max_tokens - (len(tokens) - len(request.prompt_ids))
        proposals = min(request.speculation.num_draft_tokens, left - 1)
        if proposals <= 0:
            return None
        return RowHeader(
            name,
            request.generation,
            len(tokens) - 1,
            tokens[-1],
            proposals,
            request.sampling,
            "none",
            len(tokens) - 2,
            1,
        )


class FormulaPath:
    """Drafts by the formula, every third token wrong; can fail, stall, lose rows, have gaps."""

    def __init__(self, prompt_ids: dict[str, int] | None = None) -> None:
        self.prompt_ids = prompt_ids or {}
        self.failure: Exception | None = None
        self.delay_s = 0.0
        self.gate: asyncio.Event | None = None
        self.is_losing_rows = False
        self.num_gaps_left = 0
        self.num_drafts = 0
        self.released: list[str] = []
        self.holding: set[str] = set()

    async def draft(self, request: DraftRequest) -> Draft:
        self.num_drafts += 1
        self.holding |= {header.request_id for header in request.headers}
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(self.delay_s)
        await self.check()
        headers = request.headers
        gaps: tuple[ContextGap, ...] = ()
        if self.num_gaps_left:
            self.num_gaps_left -= 1
            gaps = (ContextGap(headers[0].request_id, headers[0].generation, 0),)
            headers = headers[1:]
        if self.is_losing_rows:
            headers = headers[1:]
        longest = max((header.num_draft_tokens for header in headers), default=0)
        rows = [
            [
                token_at(self.prompt_ids.get(h.request_id, 1), h.start + 1 + k) + (k % 3 == 2)
                for k in range(longest)
            ]
            for h in headers
        ]
        tokens = torch.tensor(rows, dtype=torch.int64).reshape(len(headers), longest)
        return Draft(headers, tokens, gaps=gaps)

    async def release(self, request_ids: Sequence[str]) -> None:
        self.released.extend(request_ids)
        self.holding -= set(request_ids)

    async def check(self) -> dict[str, str]:
        if self.failure is not None:
            raise self.failure
        return {"drafter": "ready"}
