"""Where a run computes, and the other processes of it, if there are any.

`accelerate launch` and `torchrun` start several. Each reads the same files, takes its share of an
epoch's batches, and averages its gradients with the others' before every step, so all keep the same
weights. What depends on a clock or on an evaluation is decided by the main process and told to the
others. A run in one process needs no launcher and no accelerate.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import nn

from dcoco_core.errors import ConfigError

if TYPE_CHECKING:
    from accelerate import PartialState

_T = TypeVar("_T")

_LONGEST_WAIT = timedelta(hours=12)
"""For the main process, which may be drafting blocks; a process that dies ends the others."""


class Processes(Protocol):
    """All processes of a run, seen from one of them: number `rank` of `count`, on `device`."""

    rank: int
    count: int
    device: torch.device

    def average(self, loss: torch.Tensor, parameters: Iterable[nn.Parameter]) -> torch.Tensor:
        """Replaces every gradient by its mean over the processes; returns the mean loss.

        A parameter that one process did not use counts as a gradient of zeros there. One that no
        process used has none, as before.
        """
        ...

    def agree(self, value: _T) -> _T:
        """The main process's value, whatever the others passed."""
        ...

    def main_first(self) -> AbstractContextManager[None]:
        """Its body runs in the main process, then in the others: the first one fills caches."""
        ...


class OneProcess:
    """Implements Processes for a run that is alone."""

    rank, count = 0, 1

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cpu")

    def average(self, loss: torch.Tensor, parameters: Iterable[nn.Parameter]) -> torch.Tensor:
        """See Processes."""
        del parameters  # their gradients are the whole batch's
        return loss.detach()

    def agree(self, value: _T) -> _T:
        """See Processes."""
        return value

    def main_first(self) -> AbstractContextManager[None]:
        """See Processes."""
        return nullcontext()


class LaunchedProcesses:
    """Implements Processes on accelerate.

    Gradients are averaged here and not by DistributedDataParallel, which sees a network's `forward`
    only: drafters and correctors are called by other methods too. The networks are small, so one
    message with everything costs no more than its buckets.
    """

    def __init__(self, state: PartialState) -> None:
        self._state = state
        self.rank, self.count = state.process_index, state.num_processes
        self.device = torch.device(state.device)

    def average(self, loss: torch.Tensor, parameters: Iterable[nn.Parameter]) -> torch.Tensor:
        """See Processes."""
        from accelerate.utils import reduce

        trained = [p for p in parameters if p.requires_grad]
        is_used = torch.tensor([float(p.grad is not None) for p in trained], device=self.device)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        message = [loss.detach().reshape(1), is_used, *(g.flatten() for g in gradients)]
        mean: torch.Tensor = reduce(torch.cat([part.float() for part in message]), "mean")
        first, used, rest = mean.split([1, len(trained), mean.numel() - 1 - len(trained)])
        parts = rest.split([p.numel() for p in trained])
        for parameter, part, share in zip(trained, parts, used.tolist(), strict=True):
            parameter.grad = part.view_as(parameter).to(parameter.dtype) if share > 0 else None
        mean_loss: torch.Tensor = first[0]
        return mean_loss

    def agree(self, value: _T) -> _T:
        """See Processes."""
        from accelerate.utils import broadcast_object_list

        values: list[_T] = [value]
        broadcast_object_list(values)
        return values[0]

    def main_first(self) -> AbstractContextManager[None]:
        """See Processes."""
        first: AbstractContextManager[None] = self._state.main_process_first()
        return first


@contextmanager
def start_processes(device: str) -> Iterator[Processes]:
    """This run's processes: as many as a launcher has started.

    Args:
        device: "auto" (a CUDA device where there is one), "cpu", "cuda" or "cuda:N".

    Raises:
        ConfigError: no such device here, one device for several processes, or accelerate is not
            installed where a launcher has started several.
    """
    named = resolve_device(device)
    if num_launched() == 1:
        yield OneProcess(named)
        return
    if ":" in device:
        raise ConfigError(
            f"--device {device} is one device, {num_launched()} processes were started; with "
            "--device cuda each takes its own"
        )
    try:
        from accelerate import PartialState
    except ImportError:
        raise ConfigError(
            f"{num_launched()} processes were started, which needs accelerate: "
            "pip install 'dcoco[train]'"
        ) from None
    state = PartialState(cpu=named.type == "cpu", timeout=_LONGEST_WAIT)
    yield LaunchedProcesses(state)
    state.wait_for_everyone()
    state.destroy_process_group()


def resolve_device(name: str) -> torch.device:
    """The device of a name as `start_processes` takes it.

    Raises:
        ConfigError: an unknown name, or a device that is not here.
    """
    num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if num_devices else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (":" in name and not (kind == "cuda" and index.isdecimal())):
        raise ConfigError(f"unknown device {name!r}. Allowed: auto, cpu, cuda, cuda:N.")
    if kind == "cuda" and not num_devices:
        raise ConfigError(f"device {name!r}: cuda is not available here. Use auto or cpu.")
    if index and int(index) >= num_devices:
        raise ConfigError(f"device {name!r}: only {num_devices} cuda devices are here")
    return torch.device(name)


def num_launched() -> int:
    """Processes of this run, from the environment that every launcher sets."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def resolve_single_device(name: str, command: str) -> torch.device:
    """The device of a command that is one process.

    Raises:
        ConfigError: see resolve_device, or a launcher has started several processes.
    """
    if num_launched() > 1:
        raise ConfigError(f"{command} runs in one process, {num_launched()} were started")
    return resolve_device(name)


def share_of(batches: Sequence[_T], processes: Processes) -> list[_T]:
    """This process's batches of an epoch: every `count`-th one, equally many for all processes.

    Raises:
        ConfigError: fewer batches than processes.
    """
    num_each = len(batches) // processes.count
    if batches and not num_each:
        raise ConfigError(
            f"an epoch has {len(batches)} batches, too few for {processes.count} processes"
        )
    return list(batches[processes.rank : num_each * processes.count : processes.count])
