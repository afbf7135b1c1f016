"""The whole application under real Ray, every stage its own process, around a tiny random model.

One server for each transport: starting Ray costs more than everything done with it. What it leaves
behind when it stops is checked by `running_server`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from dcoco_core.decode import collect, decode
from dcoco_core.target.loading import load_target
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.target.verifier import TargetVerifier, VerifierSettings
from dcoco_core.types import Limits, Request, SamplingParams
from tests import tiny_model
from tests.acceptance.server import Server, running_server

MODEL = "tiny"
NUM_SLOTS, MAX_WAITING = 3, 2
ABOUT_BLOCKS = {
    "test_text_equals_plain_decoding_streamed_and_not",
    "test_seeded_text_equals_plain_decoding_among_others",
    "test_replies_say_how_they_were_drafted",
    "test_a_killed_drafter_costs_no_token",
}


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write_target(tmp_path_factory.mktemp("models") / "target")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each transport has a server; most tests are about what does not depend on it."""
    if "server" in metafunc.fixturenames:
        is_about_blocks = metafunc.function.__name__ in ABOUT_BLOCKS
        transports = ["handle", "socket"] if is_about_blocks else ["handle"]
        metafunc.parametrize("server", transports, indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(target_folder: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    root = target_folder.parent
    drafter = tiny_model.write_drafter(root / "drafter", target_folder)
    corrector = tiny_model.write_corrector(root / "corrector", target_folder, drafter)
    args = {
        "target": str(target_folder),
        "served_model_name": MODEL,
        "drafter": str(drafter),
        "correctors": {"none": None, "dcoco": str(corrector)},
        "default_corrector": "dcoco",
        "max_slots": NUM_SLOTS,
        "max_waiting": MAX_WAITING,
        "draft_deadline_s": 1.0,
        "numerics": "exact",
        "transport": request.param,
    }
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": 0},
        "applications": [
            {
                "name": "dcoco",
                "route_prefix": "/",
                "import_path": "deployments.app:build",
                "args": args,
            }
        ],
    }
    path = root / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    with running_server(path) as running:
        yield running


def body(prompt: str, max_tokens: int, **options: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        **options,
    }


def chat(server: Server, prompt: str, max_tokens: int = 24, **options: Any) -> httpx.Response:
    url = f"{server.base_url}/v1/chat/completions"
    return httpx.post(url, json=body(prompt, max_tokens, **options), timeout=30)


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


class Stream:
    """A streamed chat that a test can leave, or read to its end."""

    def __init__(self, server: Server, prompt: str, max_tokens: int, **options: Any) -> None:
        url = f"{server.base_url}/v1/chat/completions"
        request = body(prompt, max_tokens, stream=True, **options)
        self._context = httpx.stream("POST", url, json=request, timeout=30)
        self.response = self._context.__enter__()
        assert self.response.status_code == 200
        self._lines = self.response.iter_lines()
        self.texts: list[str] = []
        self.finish_reason: str | None = None

    def read(self, num_events: int | None = None) -> str:
        for line in self._lines:
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            (choice,) = json.loads(line.removeprefix("data: "))["choices"]
            self.texts.append(choice["delta"].get("content") or "")
            self.finish_reason = choice["finish_reason"] or self.finish_reason
            if num_events is not None and len(self.texts) >= num_events:
                break
        return "".join(self.texts)

    def leave(self) -> None:
        self._context.__exit__(None, None, None)


def plain_text(folder: Path, prompt: str, max_tokens: int, sampling: SamplingParams) -> str:
    """What plain decoding in this process answers."""
    tokenizer = TargetTokenizer(folder)
    prompt_ids = tuple(tokenizer.encode_chat([{"role": "user", "content": prompt}]))
    verifier = TargetVerifier(load_target(folder, numerics="exact"), VerifierSettings(max_slots=1))
    tokens = collect(decode([Request("r", prompt_ids, Limits(max_tokens), sampling)], verifier))
    return tokenizer.decode(tokens["r"])


def test_every_stage_is_a_process_of_its_own_and_ready(server: Server) -> None:
    health = httpx.get(f"{server.base_url}/health", timeout=10).json()
    stages = {"verifier": "ready", "drafter": "ready", "corrector": "ready"}
    assert health.pop("cpu")["busy_core_s"] > 0
    assert health == {"status": "ready", "stages": stages}
    pids = [server.replica_pids(name) for name in ("Router", "Verifier", "Drafter", "Corrector")]
    assert [len(found) for found in pids] == [1, 1, 1, 1]


def test_one_line_says_where_and_how_to_try_it(server: Server) -> None:
    deadline = time.monotonic() + 10
    while "Ready: " not in server.log and time.monotonic() < deadline:
        time.sleep(0.1)
    (line,) = [line for line in server.log.splitlines() if "Ready: " in line]
    assert f"curl {server.base_url}/v1/chat/completions" in line
    assert f'openai.OpenAI(base_url="{server.base_url}/v1"' in line


@pytest.mark.parametrize("corrector", ["none", "dcoco"])
def test_text_equals_plain_decoding_streamed_and_not(
    server: Server, target_folder: Path, corrector: str
) -> None:
    options = {"speculation": {"corrector": corrector}}
    expected = plain_text(target_folder, "abc", 40, SamplingParams())
    assert text_of(chat(server, "abc", 40, **options)) == expected
    stream = Stream(server, "abc", 40, **options)
    assert stream.read() == expected
    assert stream.finish_reason == "length"


def test_seeded_text_equals_plain_decoding_among_others(
    server: Server, target_folder: Path
) -> None:
    sampling = SamplingParams(0.8, top_p=0.9, seed=5, noise_key=5)
    expected = plain_text(target_folder, "seeded", 40, sampling)
    with ThreadPoolExecutor(NUM_SLOTS) as pool:
        others = [pool.submit(chat, server, f"other {n}", 60) for n in range(NUM_SLOTS - 1)]
        seeded = chat(server, "seeded", 40, temperature=0.8, top_p=0.9, seed=5)
        assert text_of(seeded) == expected
        assert all(other.result().status_code == 200 for other in others)


def test_replies_say_how_they_were_drafted(server: Server) -> None:
    metrics = chat(server, "abc", 40).json()["metrics"]
    assert metrics["speculation"] == {
        "enabled": True,
        "num_draft_tokens": 7,
        "corrector": "dcoco",
    }
    assert metrics["speculative_decoding"]["num_spec_steps"] > 0


def test_a_full_server_refuses_and_is_free_again_when_clients_leave(server: Server) -> None:
    # Waiting requests send no headers, so they sit in threads; they end when slots come free.
    with ThreadPoolExecutor(MAX_WAITING) as pool:
        running = [Stream(server, f"long {n}", 1800) for n in range(NUM_SLOTS)]
        for stream in running:
            stream.read(2)
        waiting = [pool.submit(chat, server, f"waiting {n}", 8) for n in range(MAX_WAITING)]
        time.sleep(0.3)
        refused = chat(server, "one too many")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["message"]
        for stream in running:
            stream.leave()
        assert all(future.result().status_code == 200 for future in waiting)


def test_disconnects_leave_no_slot_taken(server: Server) -> None:
    for _ in range(12):
        stream = Stream(server, "leaving", 1800)
        stream.read(2)
        stream.leave()
    # Every slot must be free: as many requests as there are slots run at once.
    started = time.monotonic()
    streams = [Stream(server, f"after {n}", 200) for n in range(NUM_SLOTS)]
    for stream in streams:
        stream.read(2)
    assert time.monotonic() - started < 5
    for stream in streams:
        stream.leave()


def test_a_killed_drafter_costs_no_token(server: Server, target_folder: Path) -> None:
    expected = plain_text(target_folder, "survivor", 300, SamplingParams())
    stream = Stream(server, "survivor", 300)
    stream.read(3)
    (pid,) = server.replica_pids("Drafter")
    os.kill(pid, signal.SIGKILL)
    assert stream.read() == expected
    assert stream.finish_reason == "length"
    assert text_of(chat(server, "abc", 24)) == plain_text(
        target_folder, "abc", 24, SamplingParams()
    )
