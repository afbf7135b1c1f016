"""Checks what the arguments point to before any replica starts. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dcoco_core.correctors.catalog import CORRECTORS
from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.fingerprint import fingerprint_checkpoint
from dcoco_core.emulation.acceptance import PUBLISHED
from dcoco_core.emulation.profile import find_profile
from dcoco_core.errors import CheckpointError, ConfigError
from dcoco_core.registry import unknown_name
from dcoco_core.target.folder import read_json, resolve_target
from dcoco_core.types import Speculation
from deployments.config import AppArgs, EmulationArgs
from deployments.emulated_stages import EmulatedStages
from deployments.openai_api.backend import EmulationFacts, ModelFacts


@dataclass(frozen=True, slots=True)
class Checked:
    """Arguments that can be served, with absolute paths, and what follows from them."""

    args: AppArgs
    facts: ModelFacts
    target_folder: Path


def check(args: AppArgs) -> Checked:
    """Finds target, drafter and correctors; relative paths count from the working folder.

    Raises:
        CheckpointError: a folder is missing or incomplete, or a corrector is another drafter's.
        ConfigError: an unknown corrector, more proposals than the drafter makes, or a longer
            context than target or drafter have.
    """
    target_folder = resolve_target(args.target).absolute()
    emulation = None if args.emulation is None else _emulation(args.emulation)
    drafter = None if args.drafter is None else _folder(args.drafter, "drafter")
    correctors = {
        name: None if folder is None else str(_folder(folder, f"correctors.{name}"))
        for name, folder in args.correctors.items()
    }
    for name in correctors:
        if name not in list(CORRECTORS):
            raise ConfigError("correctors: " + unknown_name("corrector", name, list(CORRECTORS)))
    config = None if drafter is None else DFlashConfig.load(drafter)
    if drafter is not None:
        _check_belonging(drafter, correctors)
    _check_length(args.max_model_len, target_folder, config)
    most = 0 if config is None else config.max_draft_tokens
    facts_of_emulation = None
    if emulation is not None:
        stages = EmulatedStages(args, emulation)
        stages.check()
        most = stages.profile.max_draft_tokens
        facts_of_emulation = EmulationFacts(
            stages.profile.name, emulation.time_scale, stages.acceptance.label
        )
    wanted = most if args.num_draft_tokens is None else args.num_draft_tokens
    if wanted > most:
        raise ConfigError(
            f"num_draft_tokens is {wanted}, but the drafter at {drafter} makes at most {most}"
        )
    served_name = args.served_model_name or _name_of(args.target)
    update = {
        "target": str(target_folder),
        "served_model_name": served_name,
        "drafter": None if drafter is None else str(drafter),
        "correctors": correctors,
        "num_draft_tokens": wanted,
        "emulation": emulation,
    }
    facts = ModelFacts(
        served_name=served_name,
        max_model_len=args.max_model_len,
        default_speculation=Speculation(wanted, args.default_corrector),
        max_num_draft_tokens=most,
        correctors=tuple(correctors),
        emulation=facts_of_emulation,
    )
    return Checked(args.model_copy(update=update), facts, target_folder)


def _emulation(args: EmulationArgs) -> EmulationArgs:
    """With absolute paths."""
    update: dict[str, str] = {"profile": str(find_profile(args.profile).absolute())}
    if args.acceptance != PUBLISHED:
        update["acceptance"] = str(Path(args.acceptance).absolute())
    if args.tape is not None:
        update["tape"] = str(Path(args.tape).absolute())
    return args.model_copy(update=update)


def _check_length(max_model_len: int, target_folder: Path, drafter: DFlashConfig | None) -> None:
    limits = {}
    stated = read_json(target_folder / "config.json").get("max_position_embeddings")
    if isinstance(stated, int):
        limits["target"] = stated
    if drafter is not None:
        limits["drafter"] = drafter.max_positions
    for stage, limit in limits.items():
        if max_model_len > limit:
            raise ConfigError(
                f"max_model_len is {max_model_len}, but the {stage} has {limit} positions"
            )


def _check_belonging(drafter: Path, correctors: Mapping[str, str | None]) -> None:
    """Compares what correctors say of their drafter; the replicas would refuse it one by one."""
    present = fingerprint_checkpoint(drafter)
    for name, folder in correctors.items():
        if folder is None:
            continue
        trained_for = read_json(Path(folder) / "config.json").get("drafter_fingerprint")
        if trained_for is None:
            raise CheckpointError(
                f"correctors.{name}: {folder} is no corrector checkpoint: its config.json has no "
                "drafter_fingerprint"
            )
        if trained_for != present:
            raise CheckpointError(
                f"correctors.{name}: {folder} was trained for drafter {trained_for}, but the "
                f"drafter at {drafter} is {present}; train the corrector on this drafter"
            )


def _folder(name: str, argument: str) -> Path:
    folder = Path(name).expanduser().absolute()
    if not (folder / "config.json").is_file():
        found = "has no config.json" if folder.is_dir() else "does not exist"
        raise CheckpointError(f"{argument}: the checkpoint folder {folder} {found}")
    return folder


def _name_of(target: str) -> str:
    """A folder's or file's own name; the whole of a hub id or a packaged target's name."""
    path = Path(target).expanduser()
    return path.absolute().name if path.exists() else target
