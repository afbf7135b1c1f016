"""What would keep a server from starting is said before Ray starts."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dcoco_core.errors import CheckpointError, ConfigError
from deployments.preflight import preflight
from tests import tiny_model

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def served(tmp_path: Path) -> dict[str, Any]:
    target = tiny_model.write_target(tmp_path / "target")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    application = {"import_path": "deployments.app:build", "args": {"target": str(target)}}
    http_options = {"host": "127.0.0.1", "port": port}
    return {"http_options": http_options, "applications": [application]}


def test_preflight_of_a_config_that_can_be_served(tmp_path: Path, served: Any) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(served))
    preflight(path)


def test_preflight_names_a_missing_checkpoint(tmp_path: Path, served: Any) -> None:
    served["applications"][0]["args"]["drafter"] = "/nowhere"
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(served))
    with pytest.raises(CheckpointError, match=r"config\.yaml: drafter: .* /nowhere does not exist"):
        preflight(path)


def test_preflight_names_a_port_that_is_taken(tmp_path: Path, served: Any) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(served))
    with socket.socket() as other:
        other.bind(("127.0.0.1", served["http_options"]["port"]))
        other.listen()
        with pytest.raises(
            ConfigError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already"
        ):
            preflight(path)


def test_preflight_checks_the_file_first(tmp_path: Path, served: Any) -> None:
    served["http_options"]["prot"] = 80
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(served))
    with pytest.raises(ConfigError, match="Did you mean 'port'"):
        preflight(path)


def test_the_command_ends_with_the_message_alone(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "deployments.preflight", tmp_path / "absent.yaml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert result.returncode == 1
    assert result.stderr == f"{tmp_path / 'absent.yaml'}: No such file or directory\n"
