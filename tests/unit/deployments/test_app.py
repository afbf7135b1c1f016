"""Topologies differ by configuration alone, and fit the machine."""

import re
from pathlib import Path
from typing import Any

import pytest
from ray.serve import Application

from deployments.app import build
from deployments.config import AppArgs
from deployments.pipeline.addresses import ApplicationKey
from tests import tiny_model

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("models")
    target = tiny_model.write_target(root / "target")
    return target, tiny_model.write_drafter(root / "drafter", target)


def deployments_of(app: Application) -> dict[str, Any]:
    """Every deployment that an application binds, by name."""
    found: dict[str, Any] = {}
    waiting = [app]
    while waiting:
        bound = waiting.pop()._bound_deployment
        found[bound.name] = bound
        waiting.extend(value for value in bound.init_args if isinstance(value, Application))
    return found


@pytest.mark.parametrize(
    ("topology", "names"),
    [
        ("colocated", {"Router", "Verifier"}),
        ("corrector_with_drafter", {"Router", "Verifier", "Drafter"}),
        ("disaggregated", {"Router", "Verifier", "Drafter", "Corrector"}),
    ],
)
def test_the_topology_decides_what_runs(
    folders: tuple[Path, Path], topology: str, names: set[str]
) -> None:
    target, drafter = folders
    args = AppArgs.model_validate(
        {"target": str(target), "drafter": str(drafter), "topology": topology}
    )
    found = deployments_of(build(args))
    assert set(found) == names == set(args.deployments)
    assert sum(d.ray_actor_options["num_cpus"] for d in found.values()) <= 2
    for deployment in found.values():
        environment = deployment.ray_actor_options["runtime_env"]["env_vars"]
        assert environment["OMP_WAIT_POLICY"] == "PASSIVE"
        assert environment["GOMP_SPINCOUNT"] == "4000"
        assert int(environment["OMP_NUM_THREADS"]) >= 1
        assert deployment.max_ongoing_requests > 1000  # Serve's default is 5


def test_without_a_drafter_the_target_runs_alone(folders: tuple[Path, Path]) -> None:
    assert set(deployments_of(build(AppArgs(target=str(folders[0]))))) == {"Router", "Verifier"}


def test_what_holds_requests_drains_longer_than_the_longest(folders: tuple[Path, Path]) -> None:
    target, drafter = folders
    args = AppArgs(target=str(target), drafter=str(drafter), request_timeout_s=77)
    found = deployments_of(build(args))
    for name in ("Router", "Verifier"):
        assert found[name]._deployment_config.graceful_shutdown_timeout_s > 77


def keys_of(app: Application) -> list[ApplicationKey]:
    bound = deployments_of(app).values()
    return [arg for d in bound for arg in d.init_args if isinstance(arg, ApplicationKey)]


def test_replicas_share_a_key_that_no_other_application_has(folders: tuple[Path, Path]) -> None:
    target, drafter = folders
    args = AppArgs(target=str(target), drafter=str(drafter))
    assert keys_of(build(args)) == []
    args = args.model_copy(update={"transport": "socket"})
    keys, others = keys_of(build(args)), keys_of(build(args))
    assert len(keys) == 3
    assert len(set(keys)) == len(set(others)) == 1
    assert keys[0] != others[0]


def test_deployments_are_bound_in_one_place() -> None:
    files = [*REPOSITORY.glob("deployments/**/*.py"), *REPOSITORY.glob("dcoco_core/**/*.py")]
    binding = [path.name for path in files if re.search(r"\.bind\(\w*\bargs", path.read_text())]
    assert binding == ["app.py"]
