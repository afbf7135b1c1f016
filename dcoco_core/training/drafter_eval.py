"""Teacher-forced quality of a drafter on recorded text it was not trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

from dcoco_core.drafters.dflash.model import DFlashModel
from dcoco_core.training.copy_loss import CopyingAttend
from dcoco_core.training.drafter_batch import BlockBatch, build_batch, fixed_anchors, in_batches
from dcoco_core.training.shards import SequenceInfo, ShardReader

_NUM_CANDIDATES = 16


@dataclass(slots=True)
class Tally:
    """Sums over blocks, per proposal j = 0, 1, ...; ratios derive from them."""

    num_blocks: int = 0
    asked: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    top1: list[int] = field(default_factory=list)
    top16: list[int] = field(default_factory=list)

    def add(self, asked: torch.Tensor, hits: torch.Tensor, recalls: torch.Tensor) -> None:
        """Adds blocks; all [N, S] bool: a token exists there, top-1 is it, top-16 holds it."""
        joint = (hits | ~asked).cumprod(1).bool() & asked
        self.num_blocks += int(asked[:, 0].sum())
        for total, part in (
            (self.asked, asked),
            (self.accepted, joint),
            (self.top1, hits & asked),
            (self.top16, recalls & asked),
        ):
            counts = part.sum(0).tolist()
            total[:] = counts if not total else [a + b for a, b in zip(total, counts, strict=True)]

    def report(self) -> dict[str, object]:
        """Acceptance length counts the token the target adds; acceptance is joint."""

        def share(counts: list[int], totals: list[int]) -> list[float]:
            return [round(c / max(1, t), 4) for c, t in zip(counts, totals, strict=True)]

        return {
            "num_blocks": self.num_blocks,
            "acceptance_length": round(1 + sum(self.accepted) / max(1, self.num_blocks), 4),
            "acceptance_per_position": share(self.accepted, [self.num_blocks] * len(self.asked)),
            "recall_at_1": share(self.top1, self.asked),
            "recall_at_16": share(self.top16, self.asked),
        }


_KINDS: dict[str, Callable[[SequenceInfo], bool]] = {
    "greedy": lambda info: info.temperature == 0.0,
    "sampled": lambda info: info.temperature > 0.0,
    "greedy_loops": lambda info: info.temperature == 0.0 and info.loops,
    "greedy_no_loops": lambda info: info.temperature == 0.0 and not info.loops,
    "sampled_no_loops": lambda info: info.temperature > 0.0 and not info.loops,
}


@torch.inference_mode()
def evaluate(
    model: DFlashModel,
    reader: ShardReader,
    embedding: torch.Tensor,
    head: torch.Tensor,
    vocab_ids: torch.Tensor,
    stride: int = 4,
) -> dict[str, dict[str, object]]:
    """Acceptance and recall by kind of text, blocks drafted at every `stride`-th position.

    Drafts are the most likely token per position, and count as accepted while they equal the
    text's: at temperature 0 that is what the verifier would do, at higher ones it is an unbiased
    estimate of it for one-hot drafts. Everything is computed where the embedding is.
    """
    config = model.config
    num_inputs = config.num_inputs(config.max_draft_tokens)
    tallies = {kind: Tally() for kind in _KINDS}
    for sequences in in_batches(reader, 8):
        anchors = [fixed_anchors(sequence, stride) for sequence in sequences]
        batch = build_batch(sequences, anchors, config, num_inputs, gamma=1.0)
        batch = batch.to(embedding.device)
        hidden, _ = run_blocks(model, batch, embedding)
        first = 0 if config.shift_label else 1
        top = top_candidates(hidden[:, :, first:], head, vocab_ids)
        labels = batch.label_ids[:, :, first:]
        hits, recalls = top[..., 0] == labels, (top == labels[..., None]).any(-1)
        for row, sequence in enumerate(sequences):
            for kind, is_kind in _KINDS.items():
                if is_kind(sequence.info):
                    tallies[kind].add(labels[row] >= 0, hits[row], recalls[row])
    return {kind: tally.report() for kind, tally in tallies.items() if tally.num_blocks}


def run_blocks(
    model: DFlashModel, batch: BlockBatch, embedding: torch.Tensor
) -> tuple[torch.Tensor, CopyingAttend]:
    """Final-normed states [R, N, B, H] of a packed batch, in the model's or autocast's dtype.

    The attention comes with them: it knows its copy loss.
    """
    rows = model.project(batch.taps.to(model.fc.weight.dtype))
    positions = torch.arange(rows.shape[1], device=rows.device)
    context = model.context_keys_values(F.linear(rows, model.context_weight()), positions)
    embedded = embedding[batch.input_ids].to(model.fc.weight.dtype)
    attend = CopyingAttend(context, batch.masks, batch)
    hidden: torch.Tensor = model(embedded, batch.positions, attend)
    return hidden.view(*batch.label_ids.shape, -1), attend


def top_candidates(
    hidden: torch.Tensor, head: torch.Tensor, vocab_ids: torch.Tensor
) -> torch.Tensor:
    """Target ids [..., 16] of the most likely tokens, best first."""
    flat = hidden.flatten(0, -2).to(head.dtype)
    parts = [
        vocab_ids[(part @ head.T).float().topk(_NUM_CANDIDATES).indices] for part in flat.split(512)
    ]
    return torch.cat(parts).view(*hidden.shape[:-1], _NUM_CANDIDATES)
