"""Runs the target over answered prompts and records what drafters and correctors learn from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from dcoco_core.drafters.dflash.checkpoint import fingerprint_target
from dcoco_core.target.interface import PackedRows, TargetModel
from dcoco_core.training.answers import Answer
from dcoco_core.training.shards import (
    NUM_TOP,
    SequenceInfo,
    ShardIndex,
    ShardWriter,
    recorded_prompts,
)


def record_answers(
    target: TargetModel,
    answers: Iterable[Answer],
    target_layer_ids: tuple[int, ...],
    folder: Path,
    tokens_per_forward: int = 1024,
) -> Iterator[int]:
    """Adds shards of all answers to `folder`; yields the number of tokens after each forward.

    Sequences are packed into forwards of about `tokens_per_forward` tokens. Answers longer than
    the target's context are cut.
    """
    writer = ShardWriter(folder, shard_index(target, target_layer_ids))
    done = recorded_prompts(folder)
    missing = (answer for answer in answers if answer.prompt_ids not in done)
    with torch.inference_mode():
        for group in _groups(missing, tokens_per_forward):
            yield _record(target, group, target_layer_ids, writer)
    writer.flush()


def shard_index(target: TargetModel, target_layer_ids: tuple[int, ...]) -> ShardIndex:
    """What shards of this target's tapped blocks say of it."""
    spec = target.spec
    return ShardIndex(
        target_name=spec.name,
        target_fingerprint=fingerprint_target(target),
        target_layer_ids=target_layer_ids,
        hidden_size=spec.hidden_size,
        vocab_size=spec.vocab_size,
        num_layers=spec.num_layers,
    )


def top_tokens(target: TargetModel, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and log-probabilities, each [N, 32], of the likeliest tokens after states [N, H]."""
    logits = target.logits(hidden.to(target.lm_head.dtype))
    top = logits.topk(min(NUM_TOP, logits.shape[-1]), dim=-1)
    return top.indices, top.values - logits.logsumexp(-1, keepdim=True)


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
        top_ids, top_log_probs = top_tokens(target, output.hidden[part])
        writer.add(
            SequenceInfo(
                answer.src, len(answer.prompt_ids), len(ids), answer.temperature, answer.loops
            ),
            token_ids=ids,
            taps=output.taps[part],
            hidden=output.hidden[part],
            top_ids=top_ids,
            top_log_probs=top_log_probs,
        )
    return sum(lengths)
