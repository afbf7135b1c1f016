"""Runs the target over answered prompts and records what drafters and correctors learn from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from dcoco_core.drafters.dflash.checkpoint import fingerprint_target
from dcoco_core.target.interface import PackedRows, TargetModel
from dcoco_core.training.answers import Answer
from dcoco_core.training.shards import NUM_TOP, ShardIndex, ShardWriter


def record_answers(
    target: TargetModel,
    answers: Iterable[Answer],
    target_layer_ids: tuple[int, ...],
    folder: Path,
    tokens_per_forward: int = 1024,
) -> Iterator[int]:
    """Writes shards of all answers to `folder`; yields the number of tokens after each forward.

    Sequences are packed into forwards of about `tokens_per_forward` tokens. Answers longer than
    the target's context are cut.
    """
    spec = target.spec
    index = ShardIndex(
        target_name=spec.name,
        target_fingerprint=fingerprint_target(target),
        target_layer_ids=target_layer_ids,
        hidden_size=spec.hidden_size,
        vocab_size=spec.vocab_size,
        num_layers=spec.num_layers,
    )
    writer = ShardWriter(folder, index)
    with torch.inference_mode():
        for group in _groups(answers, tokens_per_forward):
            yield _record(target, group, target_layer_ids, writer)
    writer.close()


def _groups(answers: Iterable[Answer], num_tokens: int) -> Iterator[list[Answer]]:
    group: list[Answer] = []
    for answer in answers:
        if len(answer.response_ids) < 2:
            continue  # nothing to predict after the first anchor
        group.append(answer)
        if sum(len(a.token_ids) for a in group) >= num_tokens:
            yield group
            group = []
    if group:
        yield group


def _record(
    target: TargetModel, group: list[Answer], layer_ids: tuple[int, ...], writer: ShardWriter
) -> int:
    sequences = [torch.tensor(a.token_ids[: target.spec.max_positions]) for a in group]
    lengths = [len(s) for s in sequences]
    rows = PackedRows(tuple(range(len(group))), (0,) * len(group), tuple(lengths))
    cache = target.new_cache(len(group), max(lengths))
    output = target.forward(torch.cat(sequences), rows, cache, layer_ids)
    start = 0
    for answer, ids in zip(group, sequences, strict=True):
        part = slice(start, start + len(ids))
        start = part.stop
        logits = target.logits(output.hidden[part]).float()
        top = logits.topk(min(NUM_TOP, logits.shape[-1]), dim=-1)
        writer.add(
            answer,
            token_ids=ids,
            taps=output.taps[part],
            hidden=output.hidden[part],
            top_ids=top.indices,
            top_log_probs=top.values - logits.logsumexp(-1, keepdim=True),
        )
    return sum(lengths)
