"""Sets up a drafter training run from a target and a shard folder, and reports on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from dcoco_core.drafters.dflash.checkpoint import (
    fingerprint_chat,
    fingerprint_target,
    load_model,
    load_vocab_map,
)
from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.model import DFlashModel
from dcoco_core.errors import ConfigError
from dcoco_core.provenance import write_run
from dcoco_core.target.folder import read_json
from dcoco_core.target.llama_config import LlamaConfig
from dcoco_core.target.loading import load_target
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.target.weights import CheckpointTensors
from dcoco_core.training.drafter import DrafterTrainer, FrozenTarget, Recipe, draft_vocabulary
from dcoco_core.training.drafter_init import initialise_from_target
from dcoco_core.training.processes import OneProcess, Processes
from dcoco_core.training.shards import ShardReader

_NUM_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """The network's free sizes; the rest follows the target."""

    num_layers: int = 2
    intermediate_size: int = 1024
    block_size: int = 8
    mask_token_id: int = 16
    draft_vocab_size: int = 8192
    shift_label: bool = True


def build_config(
    target: LlamaConfig, shape: Shape, reader: ShardReader, tokenizer: TargetTokenizer
) -> DFlashConfig:
    """The drafter's config; heads and rotation are the target's."""
    tokenizer.check_mask_token(shape.mask_token_id)
    return DFlashConfig(
        hidden_size=target.hidden_size,
        intermediate_size=min(shape.intermediate_size, target.intermediate_size),
        num_layers=shape.num_layers,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        vocab_size=target.vocab_size,
        block_size=shape.block_size,
        mask_token_id=shape.mask_token_id,
        target_layer_ids=reader.index.target_layer_ids,
        num_target_layers=target.num_layers,
        shift_label=shape.shift_label,
        draft_vocab_size=shape.draft_vocab_size,
        rms_norm_eps=target.norm_eps,
        rope_theta=float(str(target.rope["rope_theta"])),
        max_positions=target.max_positions,
        target_name=reader.index.target_name,
        target_fingerprint=reader.index.target_fingerprint,
        chat_fingerprint=fingerprint_chat(tokenizer),
    )


def start_run(  # noqa: PLR0913 - a run is made of these
    folder: Path,
    shape: Shape,
    recipe: Recipe,
    shards: Path,
    out: Path,
    initial: Path | None = None,
    processes: Processes | None = None,
) -> DrafterTrainer:
    """A trainer ready to run, or to go on where the run in `out` stopped.

    Args:
        folder: the target's.
        shape: sizes of the network.
        recipe: how to train.
        shards: the recorded text.
        out: the run's folder.
        initial: a checkpoint to begin with, of the same shape; its draft vocabulary stays.
            None begins with the target's last layers.
        processes: where to compute, and beside whom; one process on the CPU by default.

    Raises:
        ConfigError: the shards hold no text or were recorded from other weights than the
            target's, or the initial checkpoint has another shape.
        CheckpointError: the initial checkpoint is damaged.
    """
    reader = ShardReader(shards, "drafter")
    if not len(reader):
        raise ConfigError(f"{shards} holds no text for drafters; generate more")
    tokenizer = TargetTokenizer(folder)
    target = load_target(folder, dtype="bfloat16" if recipe.autocast else "float32")
    if fingerprint_target(target) != reader.index.target_fingerprint:
        raise ConfigError(
            f"{shards} was recorded from {reader.index.target_name}, whose weights are not those "
            f"of {folder}"
        )
    sizes = LlamaConfig.from_json(read_json(folder / "config.json"))
    config = build_config(sizes, shape, reader, tokenizer)
    torch.manual_seed(recipe.seed)
    model = DFlashModel(config, reader.index.hidden_size)
    if initial is None:
        ids = draft_vocabulary(reader, shape.draft_vocab_size, tuple(tokenizer.eos_token_ids))
        tensors = CheckpointTensors(folder, dtype=torch.float32, device="cpu")
        sample = torch.cat([reader[i].taps for i in range(min(_NUM_SAMPLES, len(reader)))])
        initialise_from_target(model, sizes, tensors, sample)
    else:
        ids = _initialise_from_checkpoint(model, initial)
    frozen = FrozenTarget(target.embedding.clone(), target.lm_head[ids].clone(), ids)
    processes = processes or OneProcess()
    if processes.rank == 0:
        settings = {
            "shape": asdict(shape),
            "recipe": asdict(recipe),
            "shards": str(shards),
            "initial": str(initial),
            "device": str(processes.device),
            "num_processes": processes.count,
        }
        write_run(out, settings)
    return DrafterTrainer(model, frozen, reader, recipe, out, processes)


def _initialise_from_checkpoint(model: DFlashModel, folder: Path) -> torch.Tensor:
    """Copies a checkpoint's weights; returns the target ids of its draft vocabulary."""
    config = DFlashConfig.load(folder)
    if replace(config, target_name=model.config.target_name) != model.config:
        raise ConfigError(f"{folder} has another shape, other taps or another target")
    width = model.fc.in_features // len(config.target_layer_ids)
    stored = load_model(folder, config, width, torch.float32)
    model.load_state_dict(stored.state_dict())
    ids = load_vocab_map(folder, config)
    return torch.arange(config.vocab_size) if ids is None else ids
