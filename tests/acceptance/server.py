"""The real server as a context manager: `serve run` on a free port, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
_START_S = 240.0
_STOP_S = 40.0
_FAILURES = ("Deploying app", "DEPLOY_FAILED", "Error: ", "CheckpointError", "ConfigError")


class ServerError(AssertionError):
    """The server did not start, or left something behind."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready. `folder` holds its log and Ray's files."""

    base_url: str
    ready_s: float
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / "serve.log").read_text(errors="replace")

    def replica_pids(self, deployment: str) -> list[int]:
        title = f"ServeReplica:dcoco:{deployment}"
        return [pid for pid in _processes(self.folder) if title in _command(pid)]


def end_on_sigterm() -> None:
    """For programs: a SIGTERM unwinds the stack, so that a running server is stopped, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))


@contextmanager
def running_server(
    config: Path | str = "serve_config.yaml",
    args: Mapping[str, Any] | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
) -> Iterator[Server]:
    """Starts `serve run` with `args` laid over the file's, and waits until /health says ready.

    Raises:
        ServerError: it does not start, or processes of it are left after `stop_signal`.
    """
    # Ray's sockets have long names below this folder and a limit of 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="dcoco-", dir="/tmp"))
    (folder / "ray").mkdir()
    port = _free_port()
    data = yaml.safe_load((REPOSITORY / config).read_text())
    data["http_options"]["port"] = port
    application = data["applications"][0]
    application["args"] = {**(application.get("args") or {}), **(args or {})}
    (folder / "config.yaml").write_text(yaml.safe_dump(data))
    started = time.monotonic()
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("serve"), "run", folder / "config.yaml"],
            cwd=REPOSITORY,
            # A folder of its own keeps it out of any Ray cluster that runs on this machine, and
            # marks every process that belongs to it.
            env={**os.environ, "RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(f"http://127.0.0.1:{port}", 0.0, folder, process)
    try:
        _wait_until_ready(server)
        yield Server(server.base_url, time.monotonic() - started, folder, process)
    finally:
        _stop(server, stop_signal)
    shutil.rmtree(folder, ignore_errors=True)


def _wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise ServerError(f"serve run ended:\n{server.log[-4000:]}")
        if any(word in server.log for word in _FAILURES):
            time.sleep(1.0)  # the rest of the message
            raise ServerError(f"the application was not deployed:\n{server.log[-4000:]}")
        try:
            if httpx.get(f"{server.base_url}/health", timeout=5.0).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise ServerError(f"not ready after {_START_S:.0f} s:\n{server.log[-4000:]}")


def _stop(server: Server, stop_signal: signal.Signals) -> None:
    """A signal to `serve run`; everything it started has to go with it."""
    if server.process.poll() is None:
        server.process.send_signal(stop_signal)
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None and not _processes(server.folder):
            return
        time.sleep(0.2)
    left = {pid: _command(pid) for pid in _processes(server.folder)}
    for pid in left:
        _kill(pid)
    raise ServerError(f"left behind {_STOP_S:.0f} s after {stop_signal.name}: {left}")


def _processes(folder: Path) -> list[int]:
    """Processes whose environment names `folder`: those that the server started."""
    marker = f"RAY_TMPDIR={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue  # it has ended, or is not ours
            if marker in environment.split(b"\0"):
                found.append(int(entry.name))
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
