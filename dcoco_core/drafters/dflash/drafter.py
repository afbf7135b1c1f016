"""The DFlash drafter as a stage: context rows and headers in, a lattice of candidates out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dcoco_core.drafters.dflash.cache import CachedAttend, ContextCache, HeldContext
from dcoco_core.drafters.dflash.checkpoint import (
    check_target,
    load_model,
    load_vocab_map,
)
from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.model import DFlashModel
from dcoco_core.drafters.dflash.packed import packed_for_drafting
from dcoco_core.drafters.dflash.scoring import CandidateHead
from dcoco_core.drafters.fingerprint import fingerprint_checkpoint
from dcoco_core.errors import ConfigError
from dcoco_core.target.interface import TargetTables
from dcoco_core.target.linear import Linear
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.types import ContextGap, DraftRequest, Lattice, RowHeader


@dataclass(frozen=True, slots=True)
class DrafterSettings:
    """Sizes of a drafter.

    Attributes:
        num_candidates: K, candidates per position; what the corrector asks for.
        num_draft_tokens: the most proposals a round may ask for; the checkpoint's own if None.
        block_size: asks a checkpoint for other blocks than it was trained with.
        max_slots: open requests held at once; more are decoded plainly.
        max_positions: longest sequence drafted for; past it requests are decoded plainly.
        dtype: of weights, cache and products. Scores are float32 in any case.
    """

    num_candidates: int = 16
    num_draft_tokens: int | None = None
    block_size: int | None = None
    max_slots: int = 8
    max_positions: int = 2048
    dtype: torch.dtype = torch.bfloat16


@dataclass(frozen=True, slots=True)
class _Row:
    """A header that can be drafted, and its slot."""

    header: RowHeader
    held: HeldContext


class DFlashDrafter:
    """Implements protocols.Drafter on a DFlash network.

    Args:
        model: the network.
        embedding: [V, H], the target's input embedding.
        head: what turns final states into candidates.
        settings: sizes.
        fingerprint: identifies the checkpoint, see ContextProjection.fingerprint.

    Raises:
        ConfigError: `settings` ask for more than the checkpoint can do.
    """

    def __init__(
        self,
        model: DFlashModel,
        embedding: torch.Tensor,
        head: CandidateHead,
        settings: DrafterSettings,
        fingerprint: str = "",
    ) -> None:
        config = model.config
        if settings.block_size is not None:
            config = config.with_block_size(settings.block_size)
        wanted = settings.num_draft_tokens or config.max_draft_tokens
        if wanted > config.max_draft_tokens:
            raise ConfigError(
                f"num_draft_tokens {wanted} is more than the {config.max_draft_tokens} proposals "
                f"of a block of {config.block_size}; ask for fewer or set block_size"
            )
        if settings.max_positions > config.max_positions:
            raise ConfigError(
                f"max_positions {settings.max_positions} is more than the {config.max_positions} "
                "the drafter's rotation was made for"
            )
        self.config, self.fingerprint, self.max_draft_tokens = config, fingerprint, wanted
        self._model, self._head, self._settings = packed_for_drafting(model), head, settings
        self._cache = ContextCache(
            config, settings.max_slots, settings.max_positions, settings.dtype
        )
        self._context_products = Linear(model.context_weight())
        self._anchors = embedding
        self._mask_row = embedding[config.mask_token_id].to(settings.dtype)
        self._patterns = [config.pattern(layer) for layer in range(config.num_layers)]

    @classmethod
    def load(
        cls,
        folder: Path,
        target: TargetTables,
        settings: DrafterSettings,
        tokenizer: TargetTokenizer | None = None,
    ) -> DFlashDrafter:
        """Reads a checkpoint; of `target` only embedding and head are kept.

        Raises:
            CheckpointError: the checkpoint is damaged or belongs to another target.
        """
        config = DFlashConfig.load(folder)
        check_target(config, target, tokenizer)
        model = load_model(folder, config, target.spec.hidden_size, settings.dtype)
        vocab_ids = load_vocab_map(folder, config)
        rows = target.lm_head if vocab_ids is None else target.lm_head[vocab_ids]
        head = CandidateHead(
            rows.to(settings.dtype),
            vocab_ids,
            settings.num_candidates,
            config,
        )
        return cls(model, target.embedding, head, settings, fingerprint_checkpoint(folder))

    def num_context_rows(self, request_id: str) -> int:
        """Context rows held of a request: its committed tokens minus the pending anchor."""
        return self._cache.num_rows(request_id)

    @property
    def num_free_slots(self) -> int:
        """Requests that can still be held."""
        return self._cache.num_free_slots

    def release(self, request_ids: Iterable[str]) -> None:
        """Frees the state of ended requests; unknown ids are ignored."""
        for request_id in request_ids:
            self._cache.release(request_id)

    @torch.inference_mode()
    def draft(self, request: DraftRequest) -> Lattice:
        """Appends the context rows and drafts every row in one pass.

        A row that cannot be drafted (no free slot, sequence longer than max_positions) comes back
        with num_draft_tokens 0, which the verifier decodes plainly. A row whose context does not
        connect to what is held comes back as a gap and not in the lattice.
        """
        counts = [header.num_context_rows for header in request.headers]
        if counts and request.context.shape != (sum(counts), self.config.hidden_size):
            raise ValueError(
                f"context is {list(request.context.shape)}, the headers and the drafter's hidden "
                f"size make it [{sum(counts)}, {self.config.hidden_size}]"
            )
        for header in request.headers:
            self._check(header)
        chunks = request.context.to(self._settings.dtype).split(counts)
        rows: list[_Row] = []
        appended: list[tuple[HeldContext, torch.Tensor]] = []
        headers: list[RowHeader] = []
        gaps: list[ContextGap] = []
        for header, chunk in zip(request.headers, chunks, strict=True):
            held = self._hold(header)
            if held is None:
                headers.append(replace(header, num_draft_tokens=0))
            elif (missing := _first_missing(header, held)) is not None:
                gaps.append(ContextGap(header.request_id, header.generation, missing))
            else:
                held.num_rows = header.context_start
                appended.append((held, chunk))
                rows.append(_Row(header, held))
                headers.append(header)
        self._append(appended)
        return self._lattice(headers, rows, tuple(gaps))

    def _check(self, header: RowHeader) -> None:
        if header.num_draft_tokens > self.max_draft_tokens:
            raise ConfigError(
                f"request {header.request_id!r} asks for {header.num_draft_tokens} proposals, this "
                f"drafter makes at most {self.max_draft_tokens}"
            )
        if header.context_start + header.num_context_rows != header.start:
            raise ValueError(f"context rows do not end before the anchor: {header}")

    def _hold(self, header: RowHeader) -> HeldContext | None:
        """The slot of a header that can be drafted; None decodes it plainly."""
        num_inputs = self.config.num_inputs(header.num_draft_tokens)
        if header.start + num_inputs > self._cache.max_positions:
            self._cache.release(header.request_id)
            return None
        return self._cache.hold(header.request_id, header.generation)

    def _append(self, appended: list[tuple[HeldContext, torch.Tensor]]) -> None:
        """Computes keys and values of all new context rows in one product and stores them."""
        filled = [(held, chunk) for held, chunk in appended if len(chunk)]
        if not filled:
            return
        positions = [torch.arange(h.num_rows, h.num_rows + len(c)) for h, c in filled]
        products = self._context_products(torch.cat([chunk for _, chunk in filled]))
        layers = self._model.context_keys_values(products, torch.cat(positions))
        first = 0
        for held, chunk in filled:
            columns = slice(first, first + len(chunk))
            first = columns.stop
            self._cache.append(held, chunk, layers, columns)

    def _lattice(
        self, headers: list[RowHeader], rows: list[_Row], gaps: tuple[ContextGap, ...]
    ) -> Lattice:
        num_positions = max((row.header.num_draft_tokens for row in rows), default=0)
        num_rows, k = len(headers), self._head.num_candidates
        hidden_size = self.config.hidden_size
        ids = torch.zeros((num_rows, num_positions, k), dtype=torch.int64)
        logits = torch.zeros((num_rows, num_positions, k))
        log_normalizer = torch.zeros((num_rows, num_positions))
        hidden = torch.zeros((num_rows, num_positions, hidden_size), dtype=self._settings.dtype)
        last = torch.zeros((num_rows, hidden_size), dtype=self._settings.dtype)
        if num_positions:
            drafted = {id(row.header): row for row in rows}
            index = torch.tensor([i for i, header in enumerate(headers) if id(header) in drafted])
            states = self._run(rows, num_positions)
            scored = self._head(states.flatten(0, 1))
            hidden[index] = states
            ids[index] = scored.ids.unflatten(0, states.shape[:2])
            logits[index] = scored.logits.unflatten(0, states.shape[:2])
            log_normalizer[index] = scored.log_normalizer.unflatten(0, states.shape[:2])
            last[index] = self._cache.last_rows[[row.held.slot for row in rows]]
        return Lattice(tuple(headers), ids, logits, log_normalizer, hidden, last, gaps)

    def _run(self, rows: list[_Row], num_positions: int) -> torch.Tensor:
        """Final states [R, S, H] of the proposals of every row; S = num_positions."""
        width = self.config.num_inputs(num_positions)
        embedded = self._mask_row.expand(len(rows), width, -1).clone()
        anchors = torch.tensor([row.header.anchor_id for row in rows])
        embedded[:, 0] = self._anchors[anchors].to(embedded.dtype)
        starts = torch.tensor([row.header.start for row in rows])
        attend = CachedAttend(
            self._cache,
            [row.held for row in rows],
            [self.config.num_inputs(row.header.num_draft_tokens) for row in rows],
            self._patterns,
        )
        states: torch.Tensor = self._model(embedded, starts[:, None] + torch.arange(width), attend)
        return states if self.config.shift_label else states[:, 1:]


def _first_missing(header: RowHeader, held: HeldContext) -> int | None:
    """The position to resume sending from, if the header's rows do not connect to the held ones.

    Without new rows the row before the anchor must be the last one stored, since correctors get
    it.
    """
    if header.context_start > held.num_rows:
        return held.num_rows
    if header.num_context_rows == 0 and header.start != held.num_rows:
        return max(0, header.start - 1)
    return None
