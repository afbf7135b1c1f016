"""Packed training batches: many blocks of masked tokens over each sequence's context.

The mask is the published one (DFlash, section on training): a block row sees the context rows
strictly before its anchor and the rows of its own block, nothing else. Anchors are drawn anew
every epoch, by a generator that depends on (seed, epoch, batch) alone, so that a resumed run sees
the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch.nn.utils.rnn import pad_sequence

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.training import shards

_WINDOW = 16  # batches whose sequences are sorted by length together, to save padding


@dataclass(frozen=True, slots=True)
class BlockBatch:
    """R sequences with N blocks of B rows each; Q = N * B. Weights are 0 where nothing is asked."""

    token_ids: torch.Tensor  # [R, T]
    taps: torch.Tensor  # [R, T, n * H]
    input_ids: torch.Tensor  # [R, Q]
    positions: torch.Tensor  # [R, Q]
    masks: list[torch.Tensor]  # one per layer, [R, 1, Q, T + Q]
    label_ids: torch.Tensor  # [R, N, B], -1 where there is none
    top_ids: torch.Tensor  # [R, N, B, 32]
    top_log_probs: torch.Tensor  # [R, N, B, 32]
    weights: torch.Tensor  # [R, N, B] float32

    def to(self, device: torch.device) -> BlockBatch:
        """The batch on `device`. Layers that share a mask go on sharing it."""
        distinct = {id(mask): mask.to(device) for mask in self.masks}
        tensors = {
            f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "masks"
        }
        return BlockBatch(masks=[distinct[id(mask)] for mask in self.masks], **tensors)


def draw_anchors(
    sequence: shards.Sequence, num_anchors: int, generator: torch.Generator
) -> torch.Tensor:
    """Up to `num_anchors` different response positions that have a token after them, ascending."""
    first, end = sequence.info.num_prompt, sequence.info.num_tokens - 1
    chosen = torch.randperm(max(0, end - first), generator=generator)[:num_anchors]
    return chosen.sort().values + first


def build_batch(
    sequences: Sequence[shards.Sequence],
    anchors: Sequence[torch.Tensor],
    config: DFlashConfig,
    num_rows: int,
    gamma: float,
) -> BlockBatch:
    """Packs blocks of `num_rows` rows (the anchor's included) at the given anchors.

    Weights decay as exp(-j / gamma) over the proposals j = 0, 1, ... of a block. Sequences with
    fewer anchors than others are filled with blocks of weight 0.
    """
    starts = pad_sequence(list(anchors), batch_first=True, padding_value=-1)  # [R, N]
    is_block = starts >= 0
    starts = starts.clamp_min(0)
    places = torch.arange(num_rows)
    positions = starts[..., None] + places  # [R, N, B]
    lengths = torch.tensor([s.info.num_tokens for s in sequences])

    labels_at = positions + int(config.shift_label)
    is_asked = is_block[..., None] & (labels_at < lengths[:, None, None])
    proposals = places if config.shift_label else places - 1
    if not config.shift_label:
        is_asked = is_asked & (places > 0)
    decay = torch.exp(-proposals.clamp_min(0) / gamma)

    token_ids = pad_sequence([s.token_ids.long() for s in sequences], batch_first=True)
    rows = torch.arange(len(sequences))[:, None, None]
    labels = token_ids[rows, labels_at.clamp_max(token_ids.shape[1] - 1)]
    sources = (labels_at - 1).clamp(0, token_ids.shape[1] - 1)
    inputs = torch.full_like(positions, config.mask_token_id)
    inputs[..., 0] = token_ids[rows[..., 0], starts]
    return BlockBatch(
        token_ids=token_ids,
        taps=pad_sequence([s.taps for s in sequences], batch_first=True),
        input_ids=inputs.flatten(1),
        positions=positions.flatten(1),
        masks=block_masks(config, starts, token_ids.shape[1], num_rows),
        label_ids=torch.where(is_asked, labels, -1),
        top_ids=_gather([s.top_ids.long() for s in sequences], rows, sources),
        top_log_probs=_gather([s.top_log_probs for s in sequences], rows, sources),
        weights=is_asked * decay,
    )


def _gather(tables: list[torch.Tensor], rows: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return pad_sequence(tables, batch_first=True)[rows, at]


def block_masks(
    config: DFlashConfig, starts: torch.Tensor, num_context: int, num_rows: int
) -> list[torch.Tensor]:
    """The packed mask of every layer for blocks of `num_rows` rows at anchors `starts` [R, N].

    Returns bool tensors [R, 1, N * num_rows, num_context + N * num_rows], shared by layers of one
    attention pattern.
    """
    num_blocks = starts.shape[1]
    places = torch.arange(num_rows)
    positions = (starts[..., None] + places).flatten(1)  # [R, Q]
    block_of = torch.arange(num_blocks).repeat_interleave(num_rows)
    key_positions = torch.cat(
        [torch.arange(num_context).expand(len(starts), -1), positions], dim=1
    )  # [R, T + Q]
    before_anchor = (
        key_positions[:, None, :num_context] < starts.repeat_interleave(num_rows, 1)[..., None]
    )
    own_block = (block_of[:, None] == block_of).expand(len(starts), -1, -1)
    seen = torch.cat([before_anchor, own_block], dim=2)
    distance = positions[..., None] - key_positions[:, None, :]
    masks = {}
    for layer in range(config.num_layers):
        pattern = config.pattern(layer)
        if pattern not in masks:
            masks[pattern] = pattern.restrict(seen, distance)[:, None]
    return [masks[config.pattern(layer)] for layer in range(config.num_layers)]


def epoch_batches(
    reader: shards.ShardReader, sequences_per_batch: int, seed: int, epoch: int
) -> list[list[int]]:
    """The sequence numbers of every batch of an epoch, shuffled; similar lengths go together."""
    generator = batch_generator(seed, epoch, 0)
    order = torch.randperm(len(reader), generator=generator).tolist()
    batches: list[list[int]] = []
    window = sequences_per_batch * _WINDOW
    for start in range(0, len(order), window):
        group = sorted(order[start : start + window], key=lambda i: reader[i].info.num_tokens)
        batches += [
            group[i : i + sequences_per_batch] for i in range(0, len(group), sequences_per_batch)
        ]
    shuffle = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[i] for i in shuffle]


def batch_generator(seed: int, epoch: int, batch: int) -> torch.Generator:
    """Randomness of one batch, whatever ran before it."""
    return torch.Generator().manual_seed(seed * 1_000_003 + epoch * 10_007 + batch)


def fixed_anchors(sequence: shards.Sequence, stride: int) -> torch.Tensor:
    """Every `stride`-th anchor of a response, for evaluation."""
    return torch.arange(sequence.info.num_prompt, sequence.info.num_tokens - 1, stride)


def in_batches(reader: shards.ShardReader, size: int) -> Iterator[list[shards.Sequence]]:
    """All sequences of a part, in order of length, `size` at a time."""
    order = sorted(range(len(reader)), key=lambda i: reader[i].info.num_tokens)
    for start in range(0, len(order), size):
        yield [reader[i] for i in order[start : start + size]]


def num_epoch_batches(num_sequences: int, sequences_per_batch: int) -> int:
    """Batches in an epoch."""
    return math.ceil(num_sequences / sequences_per_batch)
