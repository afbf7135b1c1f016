"""The suite against a mock server whose timings are known, each in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from loadtest.samples import Sample, read_samples
from loadtest.summary import summarise

TTFT_S, ROUND_S, TOKENS_PER_ROUND, MAX_TOKENS = 0.4, 0.06, 4, 48
E2E_S = TTFT_S + (MAX_TOKENS / TOKENS_PER_ROUND - 1) * ROUND_S
TOLERANCE = 0.03

Mock = tuple[subprocess.Popen[bytes], str]


@pytest.fixture
def mock_server() -> Iterator[Mock]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    timings = ["--ttft-ms", str(1e3 * TTFT_S), "--round-ms", str(1e3 * ROUND_S)]
    timings += ["--tokens-per-round", str(TOKENS_PER_ROUND)]
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest.mock_server", "--port", str(port), *timings]
    )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(f"{url}/v1/models", timeout=5)
            break
        except httpx.TransportError:
            assert time.monotonic() < deadline, "the mock server did not start"
            time.sleep(0.1)
    yield process, url
    process.kill()
    process.wait()


def start_locust(url: str, folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", "--host", url]
    command += ["--headless", "--only-summary", "--max-tokens", str(MAX_TOKENS)]
    return subprocess.Popen(
        [*command, "--samples", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": "."},
    )


def samples_in(folder: Path) -> list[Sample]:
    return list(read_samples(sorted(folder.glob("*.jsonl"))))


@pytest.mark.parametrize("num_clients", [1, 32])
def test_measured_is_what_the_mock_did(mock_server: Mock, tmp_path: Path, num_clients: int) -> None:
    _, url = mock_server
    clients = ["-u", str(num_clients), "-r", str(num_clients), "-t", "6s"]
    run = start_locust(url, tmp_path, *clients, "--corrector", "dcoco")
    output, _ = run.communicate(timeout=90)
    assert run.returncode == 0, output
    for row in ("TTFT", "TPOT", "inter-chunk latency", "acceptance length"):
        assert row in output
    samples = samples_in(tmp_path)
    assert len(samples) >= 5 * num_clients
    figures = summarise(samples)
    assert figures["statuses"] == {"ok": len(samples)}
    assert figures["ttft_s"]["p50"] == pytest.approx(TTFT_S, rel=TOLERANCE)
    assert figures["tpot_s"]["p50"] == pytest.approx(
        (E2E_S - TTFT_S) / (MAX_TOKENS - 1), rel=TOLERANCE
    )
    assert figures["inter_chunk_s"]["mean"] == pytest.approx(ROUND_S, rel=TOLERANCE)
    assert figures["tokens_per_s"] == pytest.approx(num_clients * MAX_TOKENS / E2E_S, rel=TOLERANCE)
    assert figures["acceptance_length"]["mean"] == TOKENS_PER_ROUND


def test_two_worker_processes_lose_no_sample(mock_server: Mock, tmp_path: Path) -> None:
    _, url = mock_server
    run = start_locust(url, tmp_path, "-u", "4", "-r", "4", "-t", "4s", "--processes", "2")
    output, _ = run.communicate(timeout=90)
    assert run.returncode == 0, output
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    samples = samples_in(tmp_path)
    assert {sample.status for sample in samples} == {"ok"}
    row = next(line for line in output.splitlines() if "/v1/chat/completions" in line)
    assert int(row.split()[2]) == len(samples)
    assert {sample.num_clients for sample in samples} == {4}


def test_a_server_killed_midway_ends_the_run_with_what_it_has(
    mock_server: Mock, tmp_path: Path
) -> None:
    server, url = mock_server
    run = start_locust(url, tmp_path, "-u", "4", "-r", "4", "-t", "10m")
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("*.jsonl"))) == 0 or len(samples_in(tmp_path)) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    server.send_signal(signal.SIGKILL)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 1, output
    statuses = {sample.status for sample in samples_in(tmp_path)}
    assert "ok" in statuses
    assert statuses & {"broken", "http_error"}
