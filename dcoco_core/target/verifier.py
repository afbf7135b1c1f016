"""The batched verifier: slots, chunked prefill, one target pass a round, commit.

Invariant, for every open request between two steps: the KV cache and the context rows hold
exactly the committed tokens minus the pending anchor (or the prefilled part of the prompt).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from dcoco_core.errors import CapacityError, RequestError
from dcoco_core.kv_cache import SlotCache
from dcoco_core.protocols import ContextProjection
from dcoco_core.target.interface import PackedRows, TargetModel
from dcoco_core.target.sequence import Sequence
from dcoco_core.types import Draft, DraftRequest, Request, Round, RowHeader, Verdict
from dcoco_core.verification.commit import commit
from dcoco_core.verification.decide import DraftedRow, decide


@dataclass(frozen=True, slots=True)
class VerifierSettings:
    """Sizes of a verifier. `prefill_chunk` bounds the prompt tokens of one step."""

    max_slots: int = 8
    max_model_len: int = 2048
    prefill_chunk: int = 256


@dataclass(frozen=True, slots=True)
class _Block:
    """What one sequence brings to a step: tokens for the target, and the draft among them."""

    sequence: Sequence
    token_ids: list[int]
    drafted: DraftedRow | None  # None: a prompt chunk that decides nothing yet
    has_draft: bool = False


class TargetVerifier:
    """Implements the Verifier protocol on a TargetModel.

    Args:
        target: the model that decides.
        settings: sizes; `max_model_len` is checked against the target's own limit.
        context_projection: hidden_norm(fc(.)) of the drafter; None serves plain decoding only.
        context_dtype: of the kept context rows (host memory, max_slots * max_model_len * H).
    """

    def __init__(
        self,
        target: TargetModel,
        settings: VerifierSettings,
        context_projection: ContextProjection | None = None,
        context_dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        num_positions = target.spec.max_positions
        if settings.max_model_len > num_positions:
            raise RequestError(
                f"max_model_len {settings.max_model_len} is more than the {num_positions} positions"
                f" of {target.spec.name}",
                field="max_model_len",
            )
        self._target = target
        self._settings = settings
        self._projection = context_projection
        self._context_dtype = context_dtype
        self._cache = target.new_cache(settings.max_slots, settings.max_model_len)
        self._context: torch.Tensor | None = None
        self._free_slots = list(range(settings.max_slots))[::-1]
        self._sequences: dict[str, Sequence] = {}

    @property
    def num_free_slots(self) -> int:
        """Requests that can still be opened."""
        return len(self._free_slots)

    @property
    def cache_bytes(self) -> int | None:
        """Memory of the caches when every slot is full; None for a target whose cache grows.

        The context rows count once there are some.
        """
        if not isinstance(self._cache, SlotCache):
            return None
        return self._cache.num_bytes + (0 if self._context is None else self._context.nbytes)

    def open(self, request: Request) -> None:
        """Reserves a slot; the next steps prefill the prompt. See protocols.Verifier."""
        if request.request_id in self._sequences:
            raise RequestError(f"request {request.request_id!r} is open", field="request_id")
        num_prompt = len(request.prompt_ids)
        if not 0 < num_prompt < self._settings.max_model_len:
            raise RequestError(
                f"the prompt has {num_prompt} tokens; 1 to {self._settings.max_model_len - 1} "
                "are possible",
                field="prompt",
            )
        if (
            not 0
            <= min(request.prompt_ids)
            <= max(request.prompt_ids)
            < self._target.spec.vocab_size
        ):
            raise RequestError(
                f"token ids must be 0 to {self._target.spec.vocab_size - 1}", field="prompt"
            )
        if not self._free_slots:
            raise CapacityError(f"all {self._settings.max_slots} slots are taken")
        room = self._settings.max_model_len - num_prompt
        limits = replace(request.limits, max_tokens=min(request.limits.max_tokens, room))
        speculation = request.speculation
        if self._projection is None:
            speculation = replace(speculation, num_draft_tokens=0)
        request = replace(request, limits=limits, speculation=speculation)
        self._sequences[request.request_id] = Sequence(request, self._free_slots.pop())

    def close(self, request_id: str) -> None:
        """Frees the slot; unknown ids are ignored."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is not None:
            self._free_slots.append(sequence.slot)

    @torch.inference_mode()
    def step(self, draft: Draft) -> Round:
        """One target pass over drafts, plain rows and prompt chunks. See protocols.Verifier."""
        for gap in draft.gaps:
            sequence = self._sequences.get(gap.request_id)
            if sequence is not None and sequence.request.generation == gap.generation:
                sequence.rewind_context(gap.num_rows)
        # The plain rows first: taking up its draft makes a row look like one that awaits none.
        waiting = [*self._plain_blocks(), *self._prefill_blocks()]
        blocks = [*self._drafted_blocks(draft), *waiting]
        if not blocks:
            return Round((), DraftRequest((), self._empty_context()))
        rows = PackedRows(
            slots=tuple(block.sequence.slot for block in blocks),
            starts=tuple(block.sequence.num_cached for block in blocks),
            counts=tuple(len(block.token_ids) for block in blocks),
        )
        token_ids = torch.tensor([token for block in blocks for token in block.token_ids])
        taps = self._projection.target_layer_ids if self._projection else ()
        output = self._target.forward(token_ids, rows, self._cache, taps)
        verdicts = self._decide(blocks, output.hidden)
        if self._projection is not None:
            self._keep_context(blocks, rows, output.taps)
        for verdict in verdicts:
            if verdict.finish_reason is not None:
                self.close(verdict.request_id)
        return Round(tuple(verdicts), self._draft_request(blocks))

    def _drafted_blocks(self, draft: Draft) -> Iterator[_Block]:
        """Rows of the draft that are still wanted: same generation, same committed length."""
        for row, header in enumerate(draft.headers):
            sequence = self._sequences.get(header.request_id)
            if sequence is None or not sequence.awaits(header):
                continue
            sequence.in_flight = False
            length = min(header.num_draft_tokens, draft.token_ids.shape[1])
            proposals = draft.token_ids[row, :length]
            sampled = length > 0 and draft.draft_probs is not None
            drafted = DraftedRow(
                start=header.start,
                sampling=sequence.request.sampling,
                draft_ids=proposals,
                candidate_ids=draft.candidate_ids[row, :length]
                if sampled and draft.candidate_ids is not None
                else None,
                draft_probs=draft.draft_probs[row, :length]
                if sampled and draft.draft_probs is not None
                else None,
            )
            tokens = [header.anchor_id, *proposals.tolist()]
            yield _Block(sequence, tokens, drafted, has_draft=length > 0)

    def _plain_blocks(self) -> Iterator[_Block]:
        """Prefilled rows that wait for no draft: one token each, the anchor."""
        for sequence in self._sequences.values():
            if sequence.is_prefilled and not sequence.in_flight:
                yield _Block(sequence, [sequence.tokens[-1]], _undrafted(sequence))

    def _prefill_blocks(self) -> Iterator[_Block]:
        """Prompt chunks in order of arrival, `prefill_chunk` tokens a step together."""
        budget = self._settings.prefill_chunk
        for sequence in self._sequences.values():
            if sequence.is_prefilled or budget <= 0:
                continue
            chunk = sequence.tokens[sequence.num_cached : sequence.num_cached + budget]
            budget -= len(chunk)
            is_last = sequence.num_cached + len(chunk) == len(sequence.tokens)
            yield _Block(sequence, chunk, _undrafted(sequence) if is_last else None)

    def _decide(self, blocks: list[_Block], hidden: torch.Tensor) -> list[Verdict]:
        """Logits of the deciding positions, decisions, commits; advances every sequence."""
        indices: list[int] = []
        end = 0
        for block in blocks:
            end += len(block.token_ids)
            if block.drafted is not None:
                indices.extend(range(end - len(block.drafted.draft_ids) - 1, end))
        deciding = [block for block in blocks if block.drafted is not None]
        for block in blocks:
            if block.drafted is None:
                block.sequence.num_cached += len(block.token_ids)
        if not deciding:
            return []
        logits = self._target.logits(hidden[torch.tensor(indices)])
        decisions = decide(logits, [block.drafted for block in deciding if block.drafted])
        verdicts = []
        for block, decision in zip(deciding, decisions, strict=True):
            sequence = block.sequence
            proposals = block.token_ids[1:] if block.has_draft else []
            committed = commit(proposals, decision, sequence.num_generated, sequence.request.limits)
            verdicts.append(
                Verdict(
                    request_id=sequence.request.request_id,
                    generation=sequence.request.generation,
                    start=len(sequence.tokens),
                    token_ids=committed.token_ids,
                    num_drafted=len(proposals) if block.has_draft else None,
                    num_accepted=committed.num_accepted,
                    finish_reason=committed.finish_reason,
                )
            )
            sequence.commit(committed.token_ids)
        return verdicts

    def _keep_context(self, blocks: list[_Block], rows: PackedRows, taps: torch.Tensor) -> None:
        """Projects and stores the rows that became context: those of committed positions."""
        first = 0
        kept: list[tuple[Sequence, int, int]] = []
        indices: list[int] = []
        for block, start, count in zip(blocks, rows.starts, rows.counts, strict=True):
            new_rows = min(block.sequence.num_cached - start, count)
            kept.append((block.sequence, start, new_rows))
            indices.extend(range(first, first + new_rows))
            first += count
        assert self._projection is not None
        projected = self._projection(taps[torch.tensor(indices)]).to(self._context_dtype)
        if self._context is None:
            shape = (self._settings.max_slots, self._settings.max_model_len, projected.shape[1])
            self._context = torch.empty(shape, dtype=self._context_dtype)
        for (sequence, start, count), chunk in zip(
            kept, projected.split([count for _, _, count in kept]), strict=True
        ):
            self._context[sequence.slot, start : start + count] = chunk

    def _draft_request(self, blocks: list[_Block]) -> DraftRequest:
        """Headers and new context rows of the rows that speculate in the next round."""
        headers: list[RowHeader] = []
        rows: list[torch.Tensor] = []
        for block in blocks:
            sequence = block.sequence
            if sequence.request.request_id not in self._sequences or not sequence.is_prefilled:
                continue
            header = sequence.next_header()
            if header is None or self._context is None:
                continue
            headers.append(header)
            rows.append(self._context[sequence.slot, header.context_start : header.start])
            sequence.in_flight = True
            sequence.num_context_sent = header.start
        return DraftRequest(tuple(headers), torch.cat(rows) if rows else self._empty_context())

    def _empty_context(self) -> torch.Tensor:
        width = 0 if self._context is None else self._context.shape[2]
        return torch.empty((0, width), dtype=self._context_dtype)


def _undrafted(sequence: Sequence) -> DraftedRow:
    """A row that decides one token from its last position alone."""
    return DraftedRow(
        start=len(sequence.tokens) - 1,
        sampling=sequence.request.sampling,
        draft_ids=torch.empty(0, dtype=torch.int64),
        candidate_ids=None,
        draft_probs=None,
    )
