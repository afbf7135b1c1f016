"""The config of emulated stages that is shipped, under real Ray."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests import tiny_model
from tests.acceptance.server import Server, running_server

CONFIG = "configs/emulated/b200-qwen3-8b.yaml"
MODEL = "emulated-qwen3-8b"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    target = tiny_model.write_target(tmp_path_factory.mktemp("models") / "target")
    with running_server(CONFIG, {"target": str(target)}) as running:
        yield running


def body(corrector: str, seed: int = 1) -> dict[str, object]:
    return {
        "model": MODEL,
        "prompt": "abc",
        "max_tokens": 48,
        "temperature": 1,
        "seed": seed,
        "ignore_eos": True,
        "speculation": {"corrector": corrector},
    }


def test_health_says_what_is_emulated_and_how_busy_the_machine_is(server: Server) -> None:
    health = httpx.get(f"{server.base_url}/health", timeout=10).json()
    assert health["emulated"] is True
    assert (health["profile"], health["time_scale"]) == ("b200-qwen3-8b", 4.0)
    assert health["cpu"]["busy_core_s"] > 0
    assert health["device"]["busy_s"] > 0  # the warm-up


def test_no_replica_of_a_stage_has_loaded_torch(server: Server) -> None:
    for name in ("Verifier", "Drafter", "Corrector"):
        (pid,) = server.replica_pids(name)
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()


def test_a_streamed_completion_is_labelled_and_equals_the_plain_one(server: Server) -> None:
    url = f"{server.base_url}/v1/completions"
    request = body("dspark-gated") | {"stream": True}
    text, last = "", {}
    with httpx.stream("POST", url, json=request, timeout=60) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: {"):
                last = json.loads(line.removeprefix("data: "))
                text += "".join(choice["text"] for choice in last["choices"])
    speculation = last["metrics"]["speculation"]
    assert speculation["corrector"] == "dspark-gated"
    assert speculation["emulated"] is True
    assert last["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 10
    plain = body("none") | {"speculation": {"enabled": False}}
    whole = httpx.post(url, json=plain, timeout=60).json()
    assert whole["choices"][0]["text"] == text
    assert whole["metrics"]["speculative_decoding"] is None


def test_several_clients_with_different_correctors(server: Server) -> None:
    url = f"{server.base_url}/v1/completions"
    names = ["none", "dcoco", "domino", "lilicorr"]
    with ThreadPoolExecutor(len(names)) as pool:
        replies = pool.map(lambda name: httpx.post(url, json=body(name), timeout=60).json(), names)
        texts = {reply["choices"][0]["text"] for reply in replies}
    assert len(texts) == 1  # one seed, one text
