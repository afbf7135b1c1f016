"""What README, CONTRIBUTING and docs say about the repository is true."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.repository import DOCUMENTS, PACKAGES, ROOT, make_targets

README = (ROOT / "README.md").read_text()
CODE = re.compile(r"^```[a-z]*\n(.*?)^```$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)


def tree_paths() -> list[str]:
    """The paths of the README's annotated file tree; two spaces of indentation a level."""
    section = README.split("## What is where", 1)[1].split("```")[1]
    parents: list[str] = []
    paths = []
    for line in filter(None, section.splitlines()[1:]):
        depth = (len(line) - len(line.lstrip(" "))) // 2
        parents = [*parents[:depth], line.split()[0]]
        paths.append("".join(parents))
    return paths


def code_of(document: Path) -> list[str]:
    """The lines of a document's code blocks, and its code spans."""
    found = CODE.findall(document.read_text())
    return [line.strip() for block, span in found for line in (block or span).splitlines()]


def make_goals(line: str) -> list[str]:
    """The targets of a line such as `make fix check test  # comment`."""
    words = line.split("#")[0].split()
    if not words or words[0] != "make":
        return []
    return [word for word in words[1:] if "=" not in word]


def test_every_path_of_the_file_tree_exists() -> None:
    paths = tree_paths()
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_file_tree_lists_every_package() -> None:
    packages = {
        f"{init.parent.relative_to(ROOT)}/"
        for package in PACKAGES
        for init in (ROOT / package).glob("**/__init__.py")
        if len(init.relative_to(ROOT).parts) <= 3
    }
    assert packages - set(tree_paths()) == set()


def test_the_file_tree_lists_every_deployment_and_core_module() -> None:
    modules = {
        str(path.relative_to(ROOT))
        for package in ("dcoco_core", "deployments")
        for path in (ROOT / package).glob("*.py")
        if path.name != "__init__.py"
    }
    assert modules - set(tree_paths()) == set()


def test_the_first_commands_are_serve_and_test() -> None:
    commands = [line for line in code_of(ROOT / "README.md") if make_goals(line)]
    assert [make_goals(line)[0] for line in commands[:2]] == ["serve", "test"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_commands_in_documents_exist(document: Path) -> None:
    goals = {goal for line in code_of(document) for goal in make_goals(line)}
    assert goals - set(make_targets()) == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_in_documents_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_files_named_in_documents_exist(document: Path) -> None:
    named = {
        span
        for span in code_of(document)
        if re.fullmatch(rf"({'|'.join(PACKAGES)}|tests|docs|configs)/[\w/]+(\.\w+)?", span)
    }
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 250


def test_every_make_target_has_help_and_make_prints_it() -> None:
    printed = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name, (_, help_text) in make_targets().items():
        assert help_text, f"make {name} has no help"
        assert re.search(rf"^ +{name} +{re.escape(help_text)}$", printed, re.MULTILINE)


def test_every_make_target_sets_up_what_it_needs() -> None:
    targets = make_targets()

    def sets_up(name: str) -> bool:
        prerequisites = targets[name][0]
        return "$(STAMP)" in prerequisites or any(map(sets_up, prerequisites))

    assert {name for name in targets if not sets_up(name)} == {"help", "clean"}
