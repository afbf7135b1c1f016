"""Asks before Ray starts whether a config file can be served.

`python -m deployments.preflight FILE` says what is missing and ends with status 1. Ray would say
so, too, but a minute later, in the middle of a log, and with the server still up.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from ray.serve.schema import HTTPOptionsSchema

from dcoco_core.errors import ConfigError, DcocoError
from deployments.checkpoints import check
from deployments.config import AppArgs
from deployments.config_check import check_file


def preflight(path: Path) -> None:
    """Checks a config file, the checkpoints that it names, and that its port is free.

    Raises:
        CheckpointError: a model folder is missing or incomplete.
        ConfigError: a wrong file, arguments that do not fit the checkpoints, or a taken port.
    """
    data = check_file(path)
    for application in data["applications"]:
        try:
            check(AppArgs.model_validate(application.get("args") or {}))
        except DcocoError as error:
            raise type(error)(f"{path}: {error}") from None
    options = HTTPOptionsSchema.model_validate(data["http_options"])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((options.host, options.port))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(
                f"{path}: cannot listen on {options.host}:{options.port}: {reason}. "
                "Stop what runs there, or change http_options.port"
            ) from None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m deployments.preflight FILE")
    try:
        preflight(Path(sys.argv[1]))
    except DcocoError as error:
        sys.exit(str(error))
