"""The commands of `make train` are commands that exist, with options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.training.__main__ import app
from dcoco_core.training.campaign import Campaign
from tests.unit.repository import ROOT

RECIPE = (ROOT / "Makefile").read_text().replace("\\\n", " ")
CAMPAIGNS = sorted((ROOT / "configs" / "training").glob("*.yaml"))
CALLS = re.findall(r"dcoco_core\.training (\w+) ([^\n|]*)", RECIPE)


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=[name for name, _ in CALLS])
def test_command_and_options_exist(name: str, arguments: str) -> None:
    commands = typer.main.get_group(app).commands
    assert name in commands
    options = {option for param in commands[name].params for option in param.opts}
    required = {
        param.opts[0]
        for param in commands[name].params
        if param.required and param.param_type_name == "option"
    }
    used = set(re.findall(r"--[a-z-]+", arguments))
    assert used <= options
    assert required <= used


@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: path.stem)
def test_campaign_files_name_options_that_exist(path: Path) -> None:
    campaign, commands = Campaign.load(path), typer.main.get_group(app).commands
    for name in ("generate", "drafter", "corrector"):
        options = {option for param in commands[name].params for option in param.opts}
        assert {f"--{key.replace('_', '-')}" for key in getattr(campaign, name)} <= options
    assert set(campaign.correctors) <= set(TRAINABLE)


def test_make_train_is_the_default_campaign() -> None:
    assert [name for name, _ in CALLS] == ["campaign"]
    assert "CAMPAIGN ?= configs/training/smollm2-135m.yaml" in RECIPE
