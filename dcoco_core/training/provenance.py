"""Where a result came from: command, commit, versions, date. Written beside every result."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")


def git_sha() -> str:
    """The commit of the source tree, with "+changes" if it differs; "unknown" outside a clone."""
    root = Path(__file__).parents[2]
    try:
        sha = _git(root, "rev-parse", "--short=12", "HEAD")
        changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return sha + ("+changes" if changes else "")


def _git(root: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def write_run(folder: Path, settings: dict[str, object]) -> None:
    """Writes folder/run.json; a resumed run adds an entry to the list there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.json"
    runs = json.loads(path.read_text()) if path.exists() else []
    runs.append(
        {
            "command": command_line(),
            "git_sha": git_sha(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {platform.system()}",
            "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
            "settings": settings,
        }
    )
    path.write_text(json.dumps(runs, indent=2, default=str) + "\n")


def command_line() -> str:
    """The command as it can be typed again."""
    return shlex.join(["python", "-m", "dcoco_core.training", *sys.argv[1:]])
