"""The emulated drafter: context accounting, gaps and lattices, without a network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dcoco_core.arrays import as_tensor
from dcoco_core.emulation.acceptance import AcceptanceSource
from dcoco_core.emulation.device import Device
from dcoco_core.emulation.proposals import proposals
from dcoco_core.emulation.tape import AnswerTape
from dcoco_core.errors import ConfigError
from dcoco_core.planning.costs import StageCost
from dcoco_core.types import ContextGap, DraftRequest, Lattice, RowHeader

UNCORRECTED = "none"


@dataclass(frozen=True, slots=True)
class EmulatedLattice:
    """Sizes of an emulated drafter and what it sends."""

    max_draft_tokens: int
    max_slots: int = 8
    num_candidates: int = 16
    hidden_size: int = 64


@dataclass(slots=True)
class _Held:
    generation: int
    num_rows: int = 0


class EmulatedDrafter:
    """Implements the Drafter protocol.

    Candidate 0 of every place is the uncorrected draft, candidate 1 a token that is not it; the
    others, logits and states are zeros of the right sizes.

    Args:
        tape: what the target says.
        acceptance: how much of the uncorrected draft is right.
        cost: of a batch, by its rows and inputs (anchor and masks).
        device: what a batch keeps busy.
        sizes: of what it holds and sends.
    """

    def __init__(
        self,
        tape: AnswerTape,
        acceptance: AcceptanceSource,
        cost: StageCost,
        device: Device,
        sizes: EmulatedLattice,
    ) -> None:
        if sizes.num_candidates < 2:
            raise ConfigError(f"num_candidates must be at least 2, got {sizes.num_candidates}")
        acceptance.of(UNCORRECTED)  # refuses a source without it
        self._tape, self._acceptance = tape, acceptance
        self._cost, self._device, self._sizes = cost, device, sizes
        self._held: dict[str, _Held] = {}

    @property
    def num_free_slots(self) -> int:
        """Requests that can still be held."""
        return self._sizes.max_slots - len(self._held)

    def num_context_rows(self, request_id: str) -> int:
        """Context rows held of a request."""
        held = self._held.get(request_id)
        return 0 if held is None else held.num_rows

    def release(self, request_ids: Iterable[str]) -> None:
        """Frees the state of ended requests; unknown ids are ignored."""
        for request_id in request_ids:
            self._held.pop(request_id, None)

    def draft(self, request: DraftRequest) -> Lattice:
        """Takes the context rows in and drafts; see DFlashDrafter.draft for rows it cannot."""
        asked_at = self._device.now()
        self._check(request)
        headers: list[RowHeader] = []
        gaps: list[ContextGap] = []
        for header in request.headers:
            held = self._hold(header)
            if held is None:
                headers.append(replace(header, num_draft_tokens=0))
                continue
            is_behind = header.context_start > held.num_rows
            if is_behind or (header.num_context_rows == 0 and header.start != held.num_rows):
                num_rows = held.num_rows if is_behind else max(0, header.start - 1)
                gaps.append(ContextGap(header.request_id, header.generation, num_rows))
                continue
            held.num_rows = header.start
            headers.append(header)
        lattice = self._lattice(tuple(headers), tuple(gaps))
        num_rows = sum(header.num_draft_tokens > 0 for header in headers)
        num_inputs = num_rows * (lattice.candidate_ids.shape[1] + 1)
        self._device.work(self._cost.seconds(num_rows, num_inputs), asked_at)
        return lattice

    def _check(self, request: DraftRequest) -> None:
        num_rows = sum(header.num_context_rows for header in request.headers)
        if tuple(request.context.shape) != (num_rows, self._sizes.hidden_size):
            raise ValueError(
                f"context is {list(request.context.shape)}, the headers and the drafter's hidden "
                f"size make it [{num_rows}, {self._sizes.hidden_size}]"
            )
        for header in request.headers:
            if header.num_draft_tokens > self._sizes.max_draft_tokens:
                raise ConfigError(
                    f"request {header.request_id!r} asks for {header.num_draft_tokens} proposals, "
                    f"this drafter makes at most {self._sizes.max_draft_tokens}"
                )
            if header.context_start + header.num_context_rows != header.start:
                raise ValueError(f"context rows do not end before the anchor: {header}")

    def _hold(self, header: RowHeader) -> _Held | None:
        """What is held of a request; None for a stale header, and when every slot is taken."""
        held = self._held.get(header.request_id)
        if held is not None and held.generation >= header.generation:
            return held if held.generation == header.generation else None
        if held is None and self.num_free_slots == 0:
            return None
        held = self._held[header.request_id] = _Held(header.generation)
        return held

    def _lattice(self, headers: tuple[RowHeader, ...], gaps: tuple[ContextGap, ...]) -> Lattice:
        num_rows, sizes = len(headers), self._sizes
        num_places = max((header.num_draft_tokens for header in headers), default=0)
        shape = (num_rows, num_places, sizes.num_candidates)
        ids = np.zeros(shape, dtype=np.int64)
        for row, header in enumerate(headers):
            tokens = proposals(header, UNCORRECTED, self._tape, self._acceptance)
            ids[row, : len(tokens), 0] = tokens
            ids[row, : len(tokens), 1] = [self._tape.other(token) for token in tokens]
        return Lattice(
            headers=headers,
            candidate_ids=as_tensor(ids),
            candidate_logits=as_tensor(np.zeros(shape, dtype=np.float32)),
            log_normalizer=as_tensor(np.zeros(shape[:2], dtype=np.float32)),
            hidden=as_tensor(np.zeros((*shape[:2], sizes.hidden_size), dtype=np.float16)),
            last_context=as_tensor(np.zeros((num_rows, sizes.hidden_size), dtype=np.float16)),
            gaps=gaps,
        )
