"""Reading and writing DFlash checkpoints in the published format, and what they must fit.

A folder holds config.json and model.safetensors (or several *.safetensors). Embedding and head
are the target's and are not stored; exports that bundle copies of them load too, and the copies
are ignored.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.model import DFlashModel
from dcoco_core.drafters.fingerprint import checkpoint_files
from dcoco_core.errors import CheckpointError
from dcoco_core.target.interface import TargetTables
from dcoco_core.target.tokenizer import TargetTokenizer

_PROBE_ROWS = 64
_PROBE_CHAT = (
    {"role": "user", "content": "What is 2 + 2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Thank you."},
)
_PREFIXES = ("model.", "draft_model.", "logit_head.")
_RENAMED = (
    (re.compile(r"^encoder\.fc\."), "fc."),
    (re.compile(r"^encoder\.output_norm_enc\."), "hidden_norm."),
    (re.compile(r"^midlayer\."), "layers.0."),
)
_BORROWED = ("embed_tokens.weight", "lm_head.weight", "t2d")
_VOCAB_MAP = "d2t"


def fingerprint_target(target: TargetTables) -> str:
    """Identifies a target's weights by a sample of its embedding and head, whatever its dtype.

    Rows are rounded to bfloat16 first, so a target loaded in float32 and one loaded in bfloat16
    have the same fingerprint.
    """
    digest = hashlib.sha256()
    spec = target.spec
    digest.update(f"{spec.hidden_size},{spec.num_layers},{spec.vocab_size}".encode())
    step = max(1, spec.vocab_size // _PROBE_ROWS)
    for table in (target.embedding, target.lm_head):
        rows = table[::step].detach().cpu().bfloat16().contiguous()
        digest.update(rows.view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:16]


def fingerprint_chat(tokenizer: TargetTokenizer) -> str | None:
    """Identifies tokenizer and chat template by the ids of a fixed conversation."""
    if not tokenizer.has_chat_template:
        return None
    ids = tokenizer.encode_chat(_PROBE_CHAT)
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]


def check_target(
    config: DFlashConfig, target: TargetTables, tokenizer: TargetTokenizer | None = None
) -> None:
    """Refuses a drafter that was not made for this target.

    Foreign checkpoints record no fingerprints; what they do not record is not compared. A wrong
    pairing never changes answers, only how many drafts are accepted.

    Raises:
        CheckpointError: naming every mismatch.
    """
    spec = target.spec
    pairs: list[tuple[str, object, object]] = [
        ("vocabulary", config.vocab_size, spec.vocab_size),
        ("hidden_size (the head is shared)", config.hidden_size, spec.hidden_size),
        ("number of target layers", config.num_target_layers, spec.num_layers),
    ]
    if config.target_fingerprint is not None:
        pairs.append(("weights", config.target_fingerprint, fingerprint_target(target)))
    if tokenizer is not None and config.chat_fingerprint is not None:
        pairs.append(("chat template", config.chat_fingerprint, fingerprint_chat(tokenizer)))
    problems = [
        f"{what}: drafter {ours}, target {theirs}" for what, ours, theirs in pairs if ours != theirs
    ]
    if problems:
        made_for = f" (it was made for {config.target_name})" if config.target_name else ""
        raise CheckpointError(
            f"the drafter does not fit the target {spec.name}{made_for}: " + "; ".join(problems)
        )
    if tokenizer is not None:
        tokenizer.check_mask_token(config.mask_token_id)


def load_model(
    folder: Path, config: DFlashConfig, target_hidden_size: int, dtype: torch.dtype
) -> DFlashModel:
    """The network with its weights.

    Raises:
        CheckpointError: for damaged files, missing or unknown tensors and wrong shapes.
    """
    tensors = read_tensors(folder)
    with torch.device("meta"):
        model = DFlashModel(config, target_hidden_size)
    expected = {name: tuple(p.shape) for name, p in model.named_parameters()}
    tensors = {name: t for name, t in tensors.items() if name != _VOCAB_MAP}
    problems = [f"{name} is missing" for name in expected if name not in tensors]
    for name, tensor in tensors.items():
        if name not in expected:
            problems.append(f"{name} is not a DFlash tensor")
        elif tuple(tensor.shape) != expected[name]:
            problems.append(f"{name} is {list(tensor.shape)}, expected {list(expected[name])}")
    if problems:
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise CheckpointError(f"{folder}: " + "; ".join(problems[:5]) + more)
    model.load_state_dict({name: t.to(dtype) for name, t in tensors.items()}, assign=True)
    return model.requires_grad_(False)


def load_vocab_map(folder: Path, config: DFlashConfig) -> torch.Tensor | None:
    """Ascending target ids [draft_vocab_size] of the draft vocabulary, None for the whole one."""
    offsets = read_tensors(folder, only=(_VOCAB_MAP,)).get(_VOCAB_MAP)
    if offsets is None:
        if config.draft_vocab_size not in (None, config.vocab_size):
            raise CheckpointError(f"{folder}: draft_vocab_size without the tensor {_VOCAB_MAP}")
        return None
    if offsets.shape != (config.draft_vocab_size,):
        raise CheckpointError(
            f"{folder}: {_VOCAB_MAP} is {list(offsets.shape)}, expected [{config.draft_vocab_size}]"
        )
    ids = torch.arange(len(offsets)) + offsets.long()
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size or len(ids.unique()) != len(ids):
        raise CheckpointError(f"{folder}: {_VOCAB_MAP} does not map into the target's vocabulary")
    return ids.sort().values  # the head's rows are gathered, so any order will do


def read_tensors(folder: Path, only: tuple[str, ...] | None = None) -> dict[str, torch.Tensor]:
    """The checkpoint's tensors under their published names; copies of the target's left out."""
    tensors: dict[str, torch.Tensor] = {}
    for path in checkpoint_files(folder):
        try:
            with safe_open(path, "pt") as shard:
                names = shard.keys()
                for stored in names:
                    name = _published_name(stored)
                    if name not in _BORROWED and (only is None or name in only):
                        tensors[name] = shard.get_tensor(stored)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
    return _split_fused(tensors, folder)


def _published_name(stored: str) -> str:
    name = stored
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    for pattern, replacement in _RENAMED:
        name = pattern.sub(replacement, name)
    return name


def _split_fused(tensors: dict[str, torch.Tensor], folder: Path) -> dict[str, torch.Tensor]:
    """Splits fused qkv_proj and gate_up_proj weights into the published single ones."""
    split: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if ".qkv_proj." in name:
            config = DFlashConfig.load(folder)
            kv = config.num_kv_heads * config.head_dim
            sizes = [config.num_heads * config.head_dim, kv, kv]
            if tensor.shape[0] != sum(sizes):
                raise CheckpointError(
                    f"{folder}: {name} has {tensor.shape[0]} rows, not {sum(sizes)}"
                )
            for kind, part in zip("qkv", tensor.split(sizes), strict=True):
                split[name.replace("qkv_proj", f"{kind}_proj")] = part
        elif ".gate_up_proj." in name:
            for kind, part in zip(("gate", "up"), tensor.chunk(2), strict=True):
                split[name.replace("gate_up_proj", f"{kind}_proj")] = part
        else:
            split[name] = tensor
    return split


def save_checkpoint(
    folder: Path,
    config: DFlashConfig,
    tensors: dict[str, torch.Tensor],
    vocab_ids: torch.Tensor | None = None,
) -> None:
    """Writes a bf16 checkpoint in the published format; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: t.detach().cpu().bfloat16().contiguous() for name, t in tensors.items()}
    if vocab_ids is not None:
        stored[_VOCAB_MAP] = vocab_ids.long() - torch.arange(len(vocab_ids))
    partial = folder / "model.safetensors.partial"
    save_file(stored, partial, metadata={"format": "pt"})
    partial.chmod(0o644)  # safetensors makes files private
    partial.rename(folder / "model.safetensors")
    partial = folder / "config.json.partial"
    partial.write_text(json.dumps(config.to_json(), indent=2) + "\n")
    partial.rename(folder / "config.json")
