"""Everything from prompts to weights within a budget of minutes: text, drafter, every corrector.

Each stage is a command of this package in a process of its own, given its share of the minutes, and
each goes on where it was stopped. The result is installed only where the quick evaluation finds it
better than what is there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dcoco_core.errors import ConfigError
from dcoco_core.training.processes import resolve_single_device

_TEXT_SHARE, _DRAFTER_SHARE = 0.4, 0.4  # of the minutes; the correctors share the rest

Options = Mapping[str, str | int | float | bool]


class Campaign(BaseModel):
    """What one campaign trains; a YAML file has these keys, see configs/training.

    Attributes:
        target: folder, GGUF file, hub id or packaged name.
        prefix: how the names of the weights' folders begin.
        correctors: names, trained side by side.
        minutes: for text and training; drafting blocks and the evaluation come on top.
        out: shards, runs and finished weights are kept here.
        generate: more options of the command `generate`, without their dashes.
        drafter: more options of `drafter`.
        corrector: more options of `corrector`.
        jobs: correctors trained at a time, each with its share of the cores.
        device: of every stage, see `--device` of the commands.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    prefix: str
    correctors: tuple[str, ...] = Field(min_length=1)
    minutes: float = Field(gt=0)
    out: Path
    generate: Options = Field(default_factory=dict)
    drafter: Options = Field(default_factory=dict)
    corrector: Options = Field(default_factory=dict)
    jobs: int = Field(default=1, ge=1)
    device: str = "auto"

    @classmethod
    def load(cls, path: Path) -> Campaign:
        """Reads a YAML file.

        Raises:
            ConfigError: no such file, no mapping in it, or keys and values that do not fit.
        """
        try:
            return cls.model_validate(yaml.safe_load(path.read_text()))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is not YAML: {error}") from None
        except ValidationError as error:
            problems = [
                f"{'.'.join(map(str, problem['loc'])) or 'file'}: {problem['msg']}"
                for problem in error.errors()
            ]
            raise ConfigError(f"{path}: " + "; ".join(problems)) from None

    @property
    def weights(self) -> Path:
        """Where finished checkpoints are put together, as in the repository's `weights`."""
        return self.out / "weights"

    def run(self) -> None:
        """Text, then the drafter, then the correctors.

        Raises:
            ConfigError: the device is not here, or a stage failed and has said why.
        """
        resolve_single_device(self.device, "campaign")
        shards, drafter = self.out / "shards", self.out / "drafter"
        text: Options = {"out": str(shards), "minutes": self.minutes * _TEXT_SHARE}
        self._command("generate", text, self.generate)
        network: Options = {
            "shards": str(shards),
            "out": str(drafter),
            "minutes": self.minutes * _DRAFTER_SHARE,
        }
        self._command("drafter", network, self.drafter)
        self._collect(drafter, "dflash")
        rounds = -(-len(self.correctors) // self.jobs)
        left = self.minutes * (1 - _TEXT_SHARE - _DRAFTER_SHARE)

        def train(name: str, jobs: int) -> None:
            head: Options = {
                "name": name,
                "shards": str(shards),
                "drafter": str(drafter / "checkpoint"),
                "blocks": str(self.out / "blocks"),
                "out": str(self.out / name),
                "minutes": left / rounds,
            }
            self._command("corrector", head, self.corrector, jobs)
            self._collect(self.out / name, name)

        first, *others = self.correctors
        train(first, 1)  # alone, because it drafts the blocks that the others read
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(lambda name: train(name, self.jobs), others))

    def _command(self, name: str, options: Options, more: Options, jobs: int = 1) -> None:
        threads = max(1, (os.cpu_count() or 1) // jobs)
        arguments = [f"--target={self.target}", f"--device={self.device}"]
        for key, value in {**options, **more}.items():
            arguments.append(f"--{key.replace('_', '-')}={value}")
        command = [sys.executable, "-m", "dcoco_core.training", name, *arguments]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": str(threads)})
        if done.returncode != 0:
            raise ConfigError(f"stage {name!r} failed; the same campaign goes on with it")

    def _collect(self, run: Path, name: str) -> None:
        folder = self.weights / f"{self.prefix}-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run / "checkpoint", folder)


def quick_evaluation(target: str, prefix: str, weights: Path, out: Path) -> dict[str, float]:
    """Greedy acceptance length by corrector, from `python -m dcoco_core.evaluation quick`."""
    command = [
        *(sys.executable, "-m", "dcoco_core.evaluation", "quick", "--target", target),
        *("--weights", str(weights), "--prefix", prefix, "--out", str(out)),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise ConfigError("the quick evaluation failed; it has said why")
    lengths: dict[str, float] = json.loads(done.stdout.splitlines()[-1])["acceptance_length"]
    return lengths


def install_if_better(campaign: Campaign, installed: Path, judge: str) -> bool:
    """Replaces the weights in `installed` if `judge`, a corrector, accepts more with the new ones.

    Weights of other prefixes stay as they are. Where nothing is installed, the new ones are.
    """
    new = quick_evaluation(campaign.target, campaign.prefix, campaign.weights, campaign.out / "new")
    if (installed / f"{campaign.prefix}-dflash").is_dir():
        old = quick_evaluation(campaign.target, campaign.prefix, installed, campaign.out / "old")
        print(f"acceptance length of {judge}: {old.get(judge)} installed, {new[judge]} new")
        if old.get(judge, 0.0) >= new[judge]:
            return False
    for folder in installed.glob(f"{campaign.prefix}-*"):
        shutil.rmtree(folder)
    shutil.copytree(campaign.weights, installed, dirs_exist_ok=True)
    return True
