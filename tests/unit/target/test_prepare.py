"""Dequantising a GGUF file: once, whole or not at all, whoever starts first."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dcoco_core.errors import CheckpointError
from dcoco_core.target import prepare
from dcoco_core.target.folder import gguf_cache_folder


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"not read in these tests")
    return file


def test_several_at_once_convert_once(
    gguf: Path, tmp_path: Path, tiny_llama: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def convert(source: Path, folder: Path) -> None:
        calls.append(source)
        assert not gguf_cache_folder(gguf, tmp_path).exists()
        time.sleep(0.2)
        for file in tiny_llama[0].iterdir():
            (folder / file.name).write_bytes(file.read_bytes())

    monkeypatch.setattr(prepare, "_convert", convert)
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(prepare.dequantise(gguf, tmp_path)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [gguf_cache_folder(gguf, tmp_path)] * 4
    assert calls == [gguf]
    assert [file for file in (tmp_path / "targets").iterdir() if file.is_dir()] == results[:1]


def test_a_failure_leaves_nothing(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(source: Path, folder: Path) -> None:
        (folder / "config.json").write_text('{"model_type": "llama"}')  # and nothing else

    monkeypatch.setattr(prepare, "_convert", convert)
    with pytest.raises(CheckpointError, match="has no tokenizer"):
        prepare.dequantise(gguf, tmp_path)
    assert not [file for file in (tmp_path / "targets").iterdir() if file.is_dir()]


def test_command_prints_the_folder(
    tiny_llama: tuple[Path, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["prepare", str(tiny_llama[0])])
    prepare.main()
    assert capsys.readouterr().out.splitlines()[-1] == str(tiny_llama[0])
    monkeypatch.setattr(sys, "argv", ["prepare", "package:no_such_package"])
    with pytest.raises(SystemExit, match="error: the package no_such_package is not installed"):
        prepare.main()
