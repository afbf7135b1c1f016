"""Makes a target ready: `python -m dcoco_core.target.prepare [NAME]` prints its folder.

For a GGUF file this is the one place that dequantises it. Several processes may start at once: a
file lock lets one work and the others find the result, and the folder appears in one rename.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

from dcoco_core.errors import CheckpointError
from dcoco_core.target.folder import (
    DEFAULT_TARGET,
    check_folder,
    gguf_cache_folder,
    resolve_target,
)


def dequantise(gguf: Path, cache_dir: Path) -> Path:
    """Writes the float32 form of a GGUF file into the cache, unless it is there.

    Raises:
        CheckpointError: the file is damaged, or transformers cannot read its architecture.
    """
    folder = gguf_cache_folder(gguf, cache_dir)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if folder.is_dir():
            return folder
        partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            _convert(gguf, partial)
            check_folder(partial)
            partial.chmod(0o755)  # mkdtemp makes it private
            partial.replace(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    try:
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
        )
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except Exception as error:  # the GGUF readers raise whatever their parsing hits
        raise CheckpointError(f"{gguf} cannot be read: {error}") from error
    # One file whatever the size, so that the folder always has the same names.
    model.save_pretrained(folder, max_shard_size="1000GB")
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Resolves a target and prints its folder as the last line."""
    parser = argparse.ArgumentParser(description="Make a target model ready for loading.")
    parser.add_argument("name", nargs="?", default=DEFAULT_TARGET, help="folder, GGUF or hub id")
    parser.add_argument("--cache-dir", type=Path, default=None, help="default: $DCOCO_CACHE")
    arguments = parser.parse_args()
    try:
        if arguments.cache_dir is not None and arguments.name.endswith(".gguf"):
            folder = dequantise(Path(arguments.name), arguments.cache_dir)
        else:
            print(f"preparing {arguments.name} (the first time takes up to a minute)", flush=True)
            folder = resolve_target(arguments.name, arguments.cache_dir)
    except CheckpointError as error:
        sys.exit(f"error: {error}")
    print(folder)


if __name__ == "__main__":
    main()
