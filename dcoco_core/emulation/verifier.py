"""The emulated verifier: slots, chunked prefill, rounds and commits, without a target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dcoco_core.arrays import as_tensor
from dcoco_core.emulation.device import Device
from dcoco_core.emulation.tape import AnswerTape
from dcoco_core.errors import CapacityError, RequestError
from dcoco_core.planning.costs import StageCost
from dcoco_core.target.sequence import Sequence
from dcoco_core.types import Draft, DraftRequest, Request, Round, RowHeader, Verdict
from dcoco_core.verification.commit import commit
from dcoco_core.verification.decision import Decision


@dataclass(frozen=True, slots=True)
class EmulatedSizes:
    """Sizes of an emulated verifier; as in VerifierSettings, and H of its context rows."""

    max_slots: int = 8
    max_model_len: int = 2048
    prefill_chunk: int = 256
    hidden_size: int = 64


@dataclass(frozen=True, slots=True)
class _Block:
    """What one sequence brings to a step, as in TargetVerifier."""

    sequence: Sequence
    num_tokens: int
    is_deciding: bool
    draft_ids: list[int] | None = None


class EmulatedVerifier:
    """Implements the Verifier protocol. The target's token is the tape's, whatever the rule.

    A draft is accepted while it equals the tape, so that speed depends on the draft and the text
    does not, as with a real target.

    Args:
        tape: what the target says.
        cost: of a step; tokens are those of blocks (anchors included) and of prompt chunks.
        device: what a step keeps busy.
        sizes: slots, lengths and width.
        has_drafter: False never asks for drafts.
    """

    def __init__(
        self,
        tape: AnswerTape,
        cost: StageCost,
        device: Device,
        sizes: EmulatedSizes,
        *,
        has_drafter: bool = True,
    ) -> None:
        self._tape, self._cost, self._device = tape, cost, device
        self._sizes, self._has_drafter = sizes, has_drafter
        self._free_slots = list(range(sizes.max_slots))[::-1]
        self._sequences: dict[str, Sequence] = {}

    @property
    def num_free_slots(self) -> int:
        """Requests that can still be opened."""
        return len(self._free_slots)

    @property
    def num_cached_tokens(self) -> int:
        """Positions that the caches of a real verifier would hold."""
        return sum(sequence.num_cached for sequence in self._sequences.values())

    def open(self, request: Request) -> None:
        """Reserves a slot; the next steps prefill the prompt. See protocols.Verifier."""
        if request.request_id in self._sequences:
            raise RequestError(f"request {request.request_id!r} is open", field="request_id")
        num_prompt, longest = len(request.prompt_ids), self._sizes.max_model_len
        if not 0 < num_prompt < longest:
            raise RequestError(
                f"the prompt has {num_prompt} tokens; 1 to {longest - 1} are possible",
                field="prompt",
            )
        if not self._free_slots:
            raise CapacityError(f"all {self._sizes.max_slots} slots are taken")
        max_tokens = min(request.limits.max_tokens, longest - num_prompt)
        request = replace(request, limits=replace(request.limits, max_tokens=max_tokens))
        if not self._has_drafter:
            speculation = replace(request.speculation, num_draft_tokens=0)
            request = replace(request, speculation=speculation)
        self._sequences[request.request_id] = Sequence(request, self._free_slots.pop())

    def close(self, request_id: str) -> None:
        """Frees the slot; unknown ids are ignored."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is not None:
            self._free_slots.append(sequence.slot)

    def step(self, draft: Draft) -> Round:
        """One step over drafts, plain rows and prompt chunks. Takes as long as the cost says."""
        asked_at = self._device.now()
        for gap in draft.gaps:
            sequence = self._sequences.get(gap.request_id)
            if sequence is not None and sequence.request.generation == gap.generation:
                sequence.rewind_context(gap.num_rows)
        waiting = [*self._plain_blocks(), *self._prefill_blocks()]
        blocks = [*self._drafted_blocks(draft), *waiting]
        if not blocks:
            return Round((), self._draft_request([]))
        verdicts = [self._decide(block) for block in blocks if block.is_deciding]
        for block in blocks:
            if not block.is_deciding:
                block.sequence.num_cached += block.num_tokens
        for verdict in verdicts:
            if verdict.finish_reason is not None:
                self.close(verdict.request_id)
        outcome = Round(tuple(verdicts), self._draft_request(blocks))
        num_tokens = sum(block.num_tokens for block in blocks)
        self._device.work(self._cost.seconds(len(blocks), num_tokens), asked_at)
        return outcome

    def _drafted_blocks(self, draft: Draft) -> Iterator[_Block]:
        """Rows that are still wanted: same generation, same committed length."""
        for row, header in enumerate(draft.headers):
            sequence = self._sequences.get(header.request_id)
            if sequence is None or not sequence.awaits(header):
                continue
            sequence.in_flight = False
            length = min(header.num_draft_tokens, draft.token_ids.shape[1])
            draft_ids = draft.token_ids[row, :length].tolist() or None
            yield _Block(sequence, length + 1, True, draft_ids)

    def _plain_blocks(self) -> Iterator[_Block]:
        for sequence in self._sequences.values():
            if sequence.is_prefilled and not sequence.in_flight:
                yield _Block(sequence, 1, True)

    def _prefill_blocks(self) -> Iterator[_Block]:
        """Prompt chunks in order of arrival, `prefill_chunk` tokens a step together."""
        budget = self._sizes.prefill_chunk
        for sequence in self._sequences.values():
            if sequence.is_prefilled or budget <= 0:
                continue
            missing = len(sequence.tokens) - sequence.num_cached
            chunk = min(missing, budget)
            budget -= chunk
            yield _Block(sequence, chunk, chunk == missing)

    def _decide(self, block: _Block) -> Verdict:
        sequence, draft_ids = block.sequence, block.draft_ids or []
        request, start = sequence.request, len(sequence.tokens)
        truth = self._tape.tokens(request.sampling.noise_key, start, len(draft_ids) + 1)
        num_accepted = 0
        while num_accepted < len(draft_ids) and draft_ids[num_accepted] == truth[num_accepted]:
            num_accepted += 1
        decision = Decision(num_accepted, truth[num_accepted])
        committed = commit(draft_ids, decision, sequence.num_generated, request.limits)
        sequence.commit(committed.token_ids)
        return Verdict(
            request_id=request.request_id,
            generation=request.generation,
            start=start,
            token_ids=committed.token_ids,
            num_drafted=len(draft_ids) or None,
            num_accepted=committed.num_accepted,
            finish_reason=committed.finish_reason,
        )

    def _draft_request(self, blocks: list[_Block]) -> DraftRequest:
        headers: list[RowHeader] = []
        for block in blocks:
            sequence = block.sequence
            if sequence.request.request_id not in self._sequences or not sequence.is_prefilled:
                continue
            header = sequence.next_header()
            if header is None:
                continue
            headers.append(header)
            sequence.in_flight = True
            sequence.num_context_sent = header.start
        num_rows = sum(header.num_context_rows for header in headers)
        # Two bytes a number, as the bf16 rows of a real verifier have.
        context = np.zeros((num_rows, self._sizes.hidden_size), dtype=np.float16)
        return DraftRequest(tuple(headers), as_tensor(context))
