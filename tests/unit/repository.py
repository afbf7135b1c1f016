"""The repository as data for the tests about it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dcoco_core", "deployments", "loadtest")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/*.md")])


def sources(*folders: str) -> list[Path]:
    """The Python files of some top-level folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def make_targets() -> dict[str, tuple[list[str], str | None]]:
    """Name to (prerequisites, help) of every phony target in the Makefile."""
    text = (ROOT / "Makefile").read_text()
    phony = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    targets = {}
    for name in (name for line in phony for name in line.split()):
        rule = re.search(rf"^{name}:([^#\n]*)(?:## (.+))?$", text, re.MULTILINE)
        assert rule, f"{name} is phony but has no rule"
        targets[name] = (rule[1].split(), rule[2])
    return targets
