"""Devices by name, shares of an epoch, and two processes that train one drafter."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dcoco_core.errors import ConfigError
from dcoco_core.training.drafter_run import start_run
from dcoco_core.training.processes import (
    OneProcess,
    resolve_device,
    resolve_single_device,
    share_of,
    start_processes,
)
from tests.unit.training import two_processes
from tests.unit.training.recorded_rule import RECIPE, SHAPE, write_recorded

ROOT = Path(__file__).parents[3]


def launch(folder: Path) -> list[dict[str, Any]]:
    """Runs two_processes twice, as a launcher would; returns what each of both saw."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, two_processes.__file__, str(folder)]
    started = [
        subprocess.Popen(command, env=os.environ | common | {"RANK": rank, "LOCAL_RANK": rank})
        for rank in ("0", "1")
    ]
    try:
        assert [process.wait(timeout=240) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


def test_two_processes_train_one_drafter(tmp_path):
    recorded = write_recorded(tmp_path)
    main, other = launch(recorded)
    assert main["losses"] == other["losses"]
    assert main["whole"] == other["whole"]
    assert (main["num_reports"], other["num_reports"]) == (1, 0)
    # Interrupted and gone on with, by both, it is the same run.
    assert (main["resumed_at"], other["resumed_at"]) == (11, 11)
    assert main["halves"] == other["halves"] == main["whole"]
    # The budget of the main process ends both at the same step.
    assert main["timed_steps"] == other["timed_steps"] > 11
    assert main["averages"] == other["averages"] == [4.0, 1.5, 2.5, None]
    # A corrector's run, whose end an evaluation decides.
    assert main["corrector"] == other["corrector"]
    assert main["curve"] == other["curve"]
    assert len(main["curve"]) == 3
    # Two batches a step teach what one of twice the size does.
    paths = (recorded / "shards", recorded / "alone")
    recipe = replace(RECIPE, sequences_per_step=2 * RECIPE.sequences_per_step)
    alone = list(start_run(recorded / "target", SHAPE, recipe, *paths).run())
    losses = torch.tensor([main["losses"], alone])
    before, after = losses[:, :4].mean(1), losses[:, -6:].mean(1)
    assert bool((after < 0.9 * before).all())
    assert float(after[0]) == pytest.approx(float(after[1]), rel=0.1)
    with pytest.raises(ConfigError, match=r"belongs to a run of 2 process\(es\), this one has 1"):
        start_run(recorded / "target", SHAPE, RECIPE, paths[0], recorded / "whole")


def test_names_of_devices():
    assert resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(
        ConfigError, match=r"unknown device 'gpu'\. Allowed: auto, cpu, cuda, cuda:N"
    ):
        resolve_device("gpu")
    for wrong in ("cuda:", "cuda:x", "cpu:0", "cuda:-1"):
        with pytest.raises(ConfigError, match="unknown device"):
            resolve_device(wrong)


def test_devices_that_are_not_here(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    for missing in ("cuda", "cuda:0"):
        with pytest.raises(ConfigError, match="cuda is not available here"):
            resolve_device(missing)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("auto") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match="only 2 cuda devices are here"):
        resolve_device("cuda:2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with (
        pytest.raises(ConfigError, match="cuda:1 is one device, 2 processes were started"),
        start_processes("cuda:1"),
    ):
        pass
    with pytest.raises(ConfigError, match="generate runs in one process, 2 were started"):
        resolve_single_device("auto", "generate")


def test_without_a_launcher_a_run_is_alone():
    with start_processes("cpu") as processes:
        assert isinstance(processes, OneProcess)
        assert share_of([1, 2, 3], processes) == [1, 2, 3]


def test_shares_are_apart_and_equal():
    class Third(OneProcess):
        count = 3

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

    shares = [share_of(range(11), Third(rank)) for rank in range(3)]
    assert shares == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    with pytest.raises(ConfigError, match="an epoch has 2 batches, too few for 3 processes"):
        share_of([1, 2], Third(0))
