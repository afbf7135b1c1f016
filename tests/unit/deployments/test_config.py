"""Arguments are typed, typos are named, and config files are checked at every level."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from dcoco_core.errors import ConfigError
from deployments.config import AppArgs
from deployments.config_check import check_config, check_file

REPOSITORY = Path(__file__).resolve().parents[3]
CONFIGS = [REPOSITORY / "serve_config.yaml", *sorted((REPOSITORY / "configs").glob("*.yaml"))]
CONFIGS += sorted((REPOSITORY / "configs/emulated").glob("*.yaml"))


@pytest.fixture
def config() -> Any:
    return {
        "http_options": {"host": "127.0.0.1", "port": 8000},
        "applications": [
            {
                "name": "dcoco",
                "route_prefix": "/",
                "import_path": "deployments.app:build",
                "args": {"drafter": "weights/d", "max_slots": 4},
                "runtime_env": {"env_vars": {"A": "b"}},
                "deployments": [
                    {
                        "name": "Verifier",
                        "autoscaling_config": {"min_replicas": 1, "max_replicas": 2},
                        "ray_actor_options": {"num_cpus": 2, "runtime_env": {"env_vars": {}}},
                    }
                ],
            }
        ],
    }


def place(config: Any, *path: str | int) -> Any:
    for part in path:
        config = config[part]
    return config


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_the_files_we_ship_are_right(path: Path) -> None:
    check_file(path)


def test_a_right_config_has_no_problems(config: Any) -> None:
    assert check_config(config) == []


APPLICATION = ("applications", 0)
DEPLOYMENT = (*APPLICATION, "deployments", 0)


@pytest.mark.parametrize(
    ("where", "typo", "meant", "said"),
    [
        ((), "http_option", "http_options", "top level"),
        (("http_options",), "prt", "port", "http_options"),
        (APPLICATION, "import_pth", "import_path", "applications[0]"),
        ((*APPLICATION, "args"), "max_slot", "max_slots", "applications[0].args"),
        ((*APPLICATION, "runtime_env"), "env_var", "env_vars", "applications[0].runtime_env"),
        (DEPLOYMENT, "num_replica", "num_replicas", "applications[0].deployments[0]"),
        (
            (*DEPLOYMENT, "ray_actor_options"),
            "num_cpu",
            "num_cpus",
            "applications[0].deployments[0].ray_actor_options",
        ),
        (
            (*DEPLOYMENT, "autoscaling_config"),
            "max_replica",
            "max_replicas",
            "applications[0].deployments[0].autoscaling_config",
        ),
    ],
)
def test_a_typo_is_named_with_its_place_and_the_nearest_key(
    config: Any, where: tuple[str | int, ...], typo: str, meant: str, said: str
) -> None:
    wrong = copy.deepcopy(config)
    place(wrong, *where)[typo] = 1
    (problem,) = check_config(wrong)
    assert problem.startswith(f"{said}: unknown key {typo!r}. Did you mean {meant!r}?")


def test_every_typo_is_reported(config: Any) -> None:
    config["aplications"] = []
    config["applications"][0]["args"]["topologie"] = "colocated"
    assert len(check_config(config)) == 2


def test_the_host_must_be_chosen(config: Any) -> None:
    del config["http_options"]["host"]
    assert any("http_options.host must be set" in problem for problem in check_config(config))
    del config["http_options"]
    assert any("0.0.0.0" in problem for problem in check_config(config))


@pytest.mark.parametrize(
    ("where", "key", "value", "said"),
    [
        ((*APPLICATION, "args"), "max_slots", 0, "applications[0].args.max_slots: "),
        ((*APPLICATION, "args"), "numerics", "exakt", "'fast' or 'exact'"),
        ((*APPLICATION, "args"), "transport", "sockets", "'handle' or 'socket'"),
        ((*APPLICATION, "args"), "default_corrector", "dcoco", "unknown default_corrector"),
        ((*APPLICATION, "args"), "draft_deadline_s", float("inf"), "finite"),
        ((*APPLICATION, "args"), "max_slots", True, "applications[0].args.max_slots: "),
        ((*APPLICATION, "args"), "max_slots", "8", "applications[0].args.max_slots: "),
        (("http_options",), "port", "http", "http_options.port: "),
        (("http_options",), "port", 70_000, "http_options.port must be 1 to 65535"),
        (("http_options",), "port", True, "http_options.port must be 1 to 65535"),
        (APPLICATION, "import_path", "deployments.app:main", "must be 'deployments.app:build'"),
        (DEPLOYMENT, "name", "Verifer", "Did you mean 'Verifier'?"),
        (DEPLOYMENT, "num_replicas", -1, "num_replicas"),
        ((*DEPLOYMENT, "autoscaling_config"), "min_replicas", 9, "max_replicas"),
    ],
)
def test_wrong_values_are_named(
    config: Any, where: tuple[str | int, ...], key: str, value: object, said: str
) -> None:
    place(config, *where)[key] = value
    problems = check_config(config)
    assert problems
    assert said in "\n".join(problems)


def test_a_deployment_must_exist_in_the_topology(config: Any) -> None:
    config["applications"][0]["deployments"][0]["name"] = "Corrector"
    assert check_config(config) == []
    config["applications"][0]["args"]["topology"] = "corrector_with_drafter"
    (problem,) = check_config(config)
    assert "unknown deployment 'Corrector'" in problem
    del config["applications"][0]["args"]["drafter"]
    (problem,) = check_config(config)
    assert problem.endswith("Allowed: Router, Verifier.")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        check_file(tmp_path / "absent.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        check_file(broken)
    broken.write_text("a: 1\na: 2")
    with pytest.raises(ConfigError, match="the key 'a' stands twice"):
        check_file(broken)
    broken.write_text("- 1")
    with pytest.raises(ConfigError, match="must be a mapping"):
        check_file(broken)


def test_the_command_says_what_is_wrong_and_fails(tmp_path: Path, config: Any) -> None:
    right, wrong = tmp_path / "right.yaml", tmp_path / "wrong.yaml"
    right.write_text(yaml.safe_dump(config))
    config["http_options"]["prot"] = 80
    wrong.write_text(yaml.safe_dump(config))
    result = subprocess.run(
        [sys.executable, "-m", "deployments.config", right, wrong],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert result.returncode == 1
    assert result.stdout == f"{right}: ok\n"
    assert "Did you mean 'port'?" in result.stderr


def test_unknown_arguments_are_named_by_the_model_itself() -> None:
    with pytest.raises(ValidationError, match=r"unknown key 'max_slot'. Did you mean 'max_slots'"):
        AppArgs.model_validate({"max_slot": 4})


@pytest.mark.parametrize("rest", [{}, {"drafter": "weights/d", "topology": "colocated"}])
def test_sockets_need_processes_to_connect(rest: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="transport 'socket' needs a Drafter deployment"):
        AppArgs.model_validate({"transport": "socket", **rest})
    AppArgs.model_validate({"transport": "socket", "drafter": "weights/d"})


def test_arguments_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        AppArgs().max_slots = 3


def test_every_argument_says_what_it_changes() -> None:
    assert all(field.description for field in AppArgs.model_fields.values())


def test_the_arguments_load_no_torch() -> None:
    program = "import sys, deployments.config; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=REPOSITORY)
