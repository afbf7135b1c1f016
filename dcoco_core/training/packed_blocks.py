"""Drafts along recorded text in packed passes, as training packs it: the way for an accelerator.

`blocks.draft_blocks` is the serving path, one anchor of each text at a time over a cache on the
CPU. Here one pass drafts at many anchors of many texts. Both compute the same function, so they
draft the same blocks up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch.nn import functional as F

from dcoco_core.drafters.dflash.checkpoint import load_model, load_vocab_map
from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.drafter import DrafterSettings
from dcoco_core.drafters.dflash.model import PackedAttend
from dcoco_core.drafters.dflash.scoring import CandidateHead
from dcoco_core.protocols import ContextProjection
from dcoco_core.target.interface import TargetTables
from dcoco_core.training.blocks import Blocks
from dcoco_core.training.drafter_batch import BlockBatch, build_batch, fixed_anchors
from dcoco_core.training.shards import Sequence as RecordedSequence

_TEXTS_PER_PASS, _ANCHORS_PER_PASS = 8, 64


class PackedDrafter:
    """A DFlash network on the target's device, for text that is known beforehand.

    Args:
        folder: a checkpoint.
        target: its embedding and head are used, and say on which device.
        projection: the same checkpoint's.
        settings: candidates, longest sequence and dtype.

    Raises:
        CheckpointError: the checkpoint is damaged.
    """

    def __init__(
        self,
        folder: Path,
        target: TargetTables,
        projection: ContextProjection,
        settings: DrafterSettings,
    ) -> None:
        config = DFlashConfig.load(folder)
        self._device = target.embedding.device
        self._config, self._projection, self._settings = config, projection, settings
        model = load_model(folder, config, target.spec.hidden_size, settings.dtype)
        self._model = model.to(self._device)
        vocab_ids = load_vocab_map(folder, config)
        if vocab_ids is not None:
            vocab_ids = vocab_ids.to(self._device)
        rows = target.lm_head if vocab_ids is None else target.lm_head[vocab_ids]
        self._head = CandidateHead(
            rows.to(settings.dtype), vocab_ids, settings.num_candidates, config
        )
        self._embedding = target.embedding

    def blocks(
        self, sequences: Iterable[RecordedSequence], num_positions: int, stride: int
    ) -> Iterator[Blocks]:
        """Blocks at every `stride`-th token of every response, on the CPU.

        Anchors too close to the longest sequence for a whole block are left out.
        """
        num_rows = self._config.num_inputs(num_positions)
        last = self._settings.max_positions - num_rows
        first = 0
        waiting = iter(sequences)
        while texts := list(islice(waiting, _TEXTS_PER_PASS)):
            anchors = [fixed_anchors(text, stride) for text in texts]
            anchors = [chosen[chosen <= last] for chosen in anchors]
            for start in range(0, max(map(len, anchors)), _ANCHORS_PER_PASS):
                part = [chosen[start : start + _ANCHORS_PER_PASS] for chosen in anchors]
                batch = build_batch(texts, part, self._config, num_rows, gamma=1.0)
                yield self._draft(batch.to(self._device), texts, first)
            first += len(texts)

    @torch.inference_mode()
    def _draft(
        self,
        batch: BlockBatch,
        texts: Sequence[RecordedSequence],
        first_number: int,
    ) -> Blocks:
        """The blocks of one pass. A text with fewer anchors than another has none in its place."""
        model, dtype = self._model, self._settings.dtype
        rows = self._projection(batch.taps.flatten(0, 1)).to(dtype)
        context = rows.unflatten(0, batch.token_ids.shape)  # [R, T, H]
        layers = model.context_keys_values(
            F.linear(context, model.context_weight()),
            torch.arange(context.shape[1], device=self._device),
        )
        embedded = self._embedding[batch.input_ids].to(dtype)
        states = model(embedded, batch.positions, PackedAttend(layers, batch.masks))
        proposals = slice(0 if self._config.shift_label else 1, None)
        shape = batch.label_ids.shape  # [R, N, B]
        is_block = (batch.label_ids[..., proposals] >= 0).any(-1)  # an anchor has a next token
        hidden = states.view(*shape, -1)[..., proposals, :][is_block]  # [M, S, H]
        scored = self._head(hidden.flatten(0, 1))
        candidates = scored.ids.unflatten(0, hidden.shape[:2])  # [M, S, K]
        logits = scored.logits - scored.log_normalizer[:, None]
        gold = batch.label_ids[..., proposals][is_block]
        wanted = batch.top_log_probs[..., proposals, :][is_block].exp()
        matches = candidates[..., None] == batch.top_ids[..., proposals, :][is_block][..., None, :]
        probs = (matches * wanted[..., None, :]).sum(-1).masked_fill((gold < 0)[..., None], 0.0)
        text, places = is_block.nonzero(as_tuple=True)
        starts = batch.positions.view(shape)[text, places, 0]
        text_here = text.cpu()
        return Blocks(
            anchor_ids=batch.input_ids.view(shape)[text, places, 0].int().cpu(),
            candidate_ids=candidates.int().cpu(),
            log_probs=logits.unflatten(0, hidden.shape[:2]).cpu(),
            hidden=hidden.bfloat16().cpu(),
            last_context=context[text, starts - 1].bfloat16().cpu(),
            gold_ids=gold.int().cpu(),
            target_probs=probs.half().cpu(),
            sequence_ids=(first_number + text_here).int(),
            temperature=torch.tensor([t.info.temperature for t in texts])[text_here],
            loops=torch.tensor([t.info.loops for t in texts])[text_here],
        )
