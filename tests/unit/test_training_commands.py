"""The commands of `make train` are commands that exist, with options that exist."""

from __future__ import annotations

import re

import pytest
import typer.main

from dcoco_core.training.__main__ import app
from tests.unit.repository import ROOT

RECIPE = (ROOT / "Makefile").read_text().replace("\\\n", " ")
CALLS = re.findall(r"dcoco_core\.training (\w+) ([^\n|]*)", RECIPE)


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=[name for name, _ in CALLS])
def test_command_and_options_exist(name: str, arguments: str) -> None:
    commands = typer.main.get_group(app).commands
    assert name in commands
    options = {option for param in commands[name].params for option in param.opts}
    required = {param.opts[0] for param in commands[name].params if param.required}
    used = set(re.findall(r"--[a-z-]+", arguments))
    assert used <= options
    assert required <= used


def test_all_four_steps_are_there_in_order() -> None:
    assert [name for name, _ in CALLS] == ["generate", "prepare", "drafter", "corrector"]
