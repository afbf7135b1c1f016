"""The two tables of a target that drafters and correctors borrow, without the rest of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from dcoco_core.errors import CheckpointError
from dcoco_core.target.folder import check_folder, read_json
from dcoco_core.target.interface import TargetSpec
from dcoco_core.target.llama_config import LlamaConfig
from dcoco_core.target.weights import CheckpointTensors

_EMBEDDING = "model.embed_tokens.weight"
_LM_HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class LoadedTables:
    """Implements TargetTables without the rest of the target."""

    spec: TargetSpec
    embedding: torch.Tensor  # [vocab_size, H]
    lm_head: torch.Tensor  # [vocab_size, H]


def load_tables(
    folder: Path, *, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> LoadedTables:
    """Reads both tables of a target folder.

    Raises:
        CheckpointError: a file is missing or damaged, or the tables have unusual names.
    """
    check_folder(folder)
    config = LlamaConfig.from_json(read_json(folder / "config.json"))
    tensors = CheckpointTensors(folder, dtype=dtype, device=device)
    if _EMBEDDING not in tensors:
        raise CheckpointError(f"{folder} has no tensor {_EMBEDDING!r}")
    shape = (config.vocab_size, config.hidden_size)
    embedding = tensors.take(_EMBEDDING, *shape)
    return LoadedTables(
        spec=TargetSpec(
            name=folder.name,
            architecture=config.architecture,
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            vocab_size=config.vocab_size,
            max_positions=config.max_positions,
        ),
        embedding=embedding,
        lm_head=tensors.take(_LM_HEAD, *shape) if _LM_HEAD in tensors else embedding,
    )
