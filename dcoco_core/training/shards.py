"""Recorded target states on disk: safetensors shards of bounded size, read through memory maps.

A folder holds `index.json` and, per part, `<part>-00000.safetensors`, ... A shard's tensors cover
its sequences back to back:

    token_ids      [N]      int32     prompt and response
    taps           [N, n*H] bfloat16  outputs of target_layer_ids, side by side
    hidden         [N, H]   bfloat16  the target's final-normed state
    top_ids        [N, 32]  int32     the target's most likely next tokens
    top_log_probs  [N, 32]  float32   their log-probabilities (temperature 1)

A sequence's last token decides nothing: when text is recorded while it is generated, the target
never reads that token, and its states are zero. So are the top tokens inside the prompt.

The parts keep text apart by a hash of the prompt: "drafter" trains drafters, "corrector" is text
the drafter has never seen, "heldout" trains nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from dcoco_core.errors import ConfigError

PARTS = ("drafter", "corrector", "heldout")
_HELDOUT_SHARE, _CORRECTOR_SHARE = 0.06, 0.16
NUM_TOP = 32
_INDEX = "index.json"


def part_of(prompt_ids: tuple[int, ...]) -> str:
    """The part a prompt belongs to, whatever file or order it comes in."""
    digest = hashlib.sha256(",".join(map(str, prompt_ids)).encode()).hexdigest()
    place = int(digest[:8], 16) / 0x1_0000_0000
    if place < _HELDOUT_SHARE:
        return "heldout"
    return "corrector" if place < _HELDOUT_SHARE + _CORRECTOR_SHARE else "drafter"


@dataclass(frozen=True, slots=True)
class SequenceInfo:
    """Where a sequence came from. Its response begins `num_prompt` tokens in."""

    src: str
    num_prompt: int
    num_tokens: int
    temperature: float
    loops: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """One recorded sequence of T tokens; tensors are views into the shard (see the module)."""

    info: SequenceInfo
    token_ids: torch.Tensor  # [T] int32
    taps: torch.Tensor  # [T, n * H] bfloat16
    hidden: torch.Tensor  # [T, H] bfloat16
    top_ids: torch.Tensor  # [T, 32] int32
    top_log_probs: torch.Tensor  # [T, 32] float32


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The target the shards were recorded from."""

    target_name: str
    target_fingerprint: str
    target_layer_ids: tuple[int, ...]
    hidden_size: int
    vocab_size: int
    num_layers: int


class ShardWriter:
    """Collects sequences and writes a shard per part whenever enough tokens have come together.

    The index is rewritten after every shard, so that an interrupted run loses at most what is
    pending; a writer on a folder that has shards adds to them.

    Raises:
        ConfigError: the folder's shards were recorded from another target or other blocks of it.
    """

    def __init__(self, folder: Path, index: ShardIndex, tokens_per_shard: int = 32768) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._index, self._limit = folder, index, tokens_per_shard
        self._pending: dict[str, list[Sequence]] = {part: [] for part in PARTS}
        self._shards: dict[str, list[list[dict[str, Any]]]] = {part: [] for part in PARTS}
        if (folder / _INDEX).exists():
            data = _read_index(folder)
            if _parse_index(data) != index:
                raise ConfigError(
                    f"{folder} holds shards of another target or of other blocks; "
                    "choose another folder or remove it"
                )
            self._shards = data["parts"]

    def add(self, info: SequenceInfo, **tensors: torch.Tensor) -> None:
        """Adds one sequence; `tensors` are the fields of Sequence, from whatever device."""
        sequence = Sequence(info, **{name: tensor.cpu() for name, tensor in tensors.items()})
        prompt = sequence.token_ids[: info.num_prompt].tolist()
        self._pending[part_of(tuple(prompt))].append(sequence)
        pending = (s.info.num_tokens for part in self._pending.values() for s in part)
        if sum(pending) >= self._limit:
            self.flush()

    def flush(self) -> None:
        """Writes what is pending, then the index."""
        for part, sequences in self._pending.items():
            if not sequences:
                continue
            tensors = {
                "token_ids": torch.cat([s.token_ids for s in sequences]).int(),
                "taps": torch.cat([s.taps for s in sequences]).bfloat16(),
                "hidden": torch.cat([s.hidden for s in sequences]).bfloat16(),
                "top_ids": torch.cat([s.top_ids for s in sequences]).int(),
                "top_log_probs": torch.cat([s.top_log_probs for s in sequences]).float(),
            }
            shards = self._shards[part]
            save_file(tensors, self._folder / f"{part}-{len(shards):05d}.safetensors")
            shards.append([asdict(s.info) for s in sequences])
            self._pending[part] = []
        partial = self._folder / f"partial-{_INDEX}"
        partial.write_text(json.dumps(asdict(self._index) | {"parts": self._shards}))
        partial.replace(self._folder / _INDEX)


def recorded_prompts(folder: Path) -> set[tuple[int, ...]]:
    """The prompts a folder has sequences of; empty where there are no shards."""
    if not (folder / _INDEX).exists():
        return set()
    return {
        tuple(sequence.token_ids[: sequence.info.num_prompt].tolist())
        for part in PARTS
        for sequence in ShardReader(folder, part)
    }


class ShardReader:
    """The recorded sequences of one part, by number; tensors stay on disk until they are read."""

    def __init__(self, folder: Path, part: str) -> None:
        if part not in PARTS:
            raise ConfigError(f"unknown part {part!r}. Allowed: {', '.join(PARTS)}.")
        data = _read_index(folder)
        self.index = _parse_index(data)
        self._sequences = list(_load_part(folder, part, data["parts"][part]))

    def __len__(self) -> int:
        return len(self._sequences)

    def __getitem__(self, number: int) -> Sequence:
        return self._sequences[number]

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)


def _parse_index(data: dict[str, Any]) -> ShardIndex:
    return ShardIndex(
        target_name=data["target_name"],
        target_fingerprint=data["target_fingerprint"],
        target_layer_ids=tuple(data["target_layer_ids"]),
        hidden_size=data["hidden_size"],
        vocab_size=data["vocab_size"],
        num_layers=data["num_layers"],
    )


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / _INDEX
    if not path.exists():
        raise ConfigError(
            f"no shards at {folder}; `python -m dcoco_core.training generate` makes them"
        )
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def _load_part(folder: Path, part: str, shards: list[list[dict[str, Any]]]) -> Iterator[Sequence]:
    for number, infos in enumerate(shards):
        tensors = load_file(folder / f"{part}-{number:05d}.safetensors")
        start = 0
        for info in infos:
            sequence = SequenceInfo(**info)
            rows = slice(start, start + sequence.num_tokens)
            start = rows.stop
            yield Sequence(sequence, **{name: tensor[rows] for name, tensor in tensors.items()})
