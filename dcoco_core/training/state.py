"""What a training run needs to go on where it stopped: weights, averages, moments, counters.

Stored as safetensors and JSON, never pickled. Randomness needs no state: every batch draws from
a generator that depends on its place alone (see drafter_batch.batch_generator).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from dcoco_core.errors import CheckpointError, ConfigError


@dataclass(slots=True)
class Progress:
    """How far a run is. `elapsed_s` counts training time over all resumptions."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    elapsed_s: float = 0.0


class Ema:
    """Exponential moving average of a network's weights; what is evaluated and shipped."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._parameters = list(model.parameters())
        self._names = [name for name, _ in model.named_parameters()]
        self._decay = decay
        self._averages = [p.detach().clone() for p in self._parameters]
        self._num_updates = 0

    @torch.no_grad()
    def update(self) -> None:
        """Follows the weights; faster in the beginning, so that early ones are forgotten."""
        self._num_updates += 1
        decay = min(self._decay, self._num_updates / (self._num_updates + 10))
        torch._foreach_lerp_(self._averages, [p.detach() for p in self._parameters], 1 - decay)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The averages by parameter name."""
        return dict(zip(self._names, self._averages, strict=True))

    @torch.no_grad()
    def restore(self, tensors: dict[str, torch.Tensor], num_updates: int) -> None:
        """Takes over stored averages."""
        for name, average in zip(self._names, self._averages, strict=True):
            average.copy_(tensors[name])
        self._num_updates = num_updates

    @property
    def num_updates(self) -> int:
        """Updates so far."""
        return self._num_updates


def save_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: Ema,
    progress: Progress,
    num_processes: int = 1,
) -> None:
    """Writes state.safetensors; an interrupted save leaves the previous state."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach()
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{key}.{name}"] = value
    tensors |= {f"ema.{name}": average for name, average in ema.tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    facts = asdict(progress) | {"ema_updates": ema.num_updates, "num_processes": num_processes}
    partial = folder / "state.safetensors.partial"
    on_cpu = {name: tensor.cpu() for name, tensor in tensors.items()}
    save_file(on_cpu, partial, metadata={"progress": json.dumps(facts)})
    partial.rename(folder / "state.safetensors")


def load_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: Ema,
    num_processes: int = 1,
) -> Progress:
    """Restores what save_state wrote, on the model's device.

    Raises:
        CheckpointError: the stored run had another network.
        ConfigError: it had another number of processes, so its place in an epoch means something
            else here.
    """
    path = folder / "state.safetensors"
    facts = _progress(path)
    found = int(facts.get("num_processes", 1))
    if found != num_processes:
        raise ConfigError(
            f"{path} belongs to a run of {found} process(es), this one has {num_processes}; start "
            f"{found} or choose another folder"
        )
    tensors = load_file(path)
    parameters = dict(model.named_parameters())
    names = {name.removeprefix("weight.") for name in tensors if name.startswith("weight.")}
    if names != set(parameters) or any(
        tensors[f"weight.{name}"].shape != p.shape for name, p in parameters.items()
    ):
        raise CheckpointError(f"{path} belongs to another network; choose another folder")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"weight.{name}"])
            optimizer.state[parameter] = {
                key.split(".", 2)[1]: value
                for key, value in tensors.items()
                if key.startswith("optimizer.") and key.split(".", 2)[2] == name
            }
    # A round trip through its own dictionary puts the moments where this optimizer wants them.
    optimizer.load_state_dict(optimizer.state_dict())
    ema.restore(
        {name: tensors[f"ema.{name}"] for name in parameters}, int(facts.pop("ema_updates"))
    )
    return Progress(
        step=int(facts["step"]),
        epoch=int(facts["epoch"]),
        batch=int(facts["batch"]),
        elapsed_s=facts["elapsed_s"],
    )


def _progress(path: Path) -> dict[str, float]:
    with path.open("rb") as data:
        header = json.loads(data.read(int.from_bytes(data.read(8), "little")))
    facts: dict[str, float] = json.loads(header["__metadata__"]["progress"])
    return facts
