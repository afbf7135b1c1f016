"""`make bad-input`: everything a client or an operator can get wrong is told so clearly.

Sends the real server each bad request while a good one runs beside it, checks status and message,
and that the server answers as before. Then a config file with a typo and missing checkpoints.
Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dcoco_core.errors import DcocoError
from deployments.checkpoints import check
from deployments.config import AppArgs
from tests.acceptance.server import REPOSITORY, running_server

CHAT = "/v1/chat/completions"
JSON_HEADERS = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A request, the status it must get, and what the error's message must say.

    `body` is sent as it stands if it is text; otherwise it changes a good chat.
    """

    name: str
    body: dict[str, Any] | str
    status: int
    hint: str
    param: str | None = None
    path: str = CHAT
    method: str = "POST"


BAD_REQUESTS = (
    BadRequest("wrong model name", {"model": "gpt-4"}, 404, "serves", "model"),
    BadRequest("empty messages", {"messages": []}, 400, "at least 1", "messages"),
    BadRequest("temperature -1", {"temperature": -1}, 400, "equal to 0", "temperature"),
    BadRequest("temperature NaN", {"temperature": float("nan")}, 400, "finite", "temperature"),
    BadRequest("max_tokens 0", {"max_tokens": 0}, 400, "equal to 1", "max_tokens"),
    BadRequest("top_p 0", {"top_p": 0}, 400, "greater than 0", "top_p"),
    BadRequest(
        "prompt longer than the context",
        {"messages": [{"role": "user", "content": "word " * 20_000}]},
        400,
        "context",
        "messages",
    ),
    BadRequest("invalid JSON", '{"model": ', 400, "not valid JSON"),
    BadRequest("unknown parameter", {"temperatur": 1}, 400, "'temperature'", "temperatur"),
    BadRequest("unsupported parameter", {"n": 2}, 400, "not supported", "n"),
    BadRequest(
        "unknown corrector",
        {"speculation": {"corrector": "nobody"}},
        400,
        "Allowed",
        "speculation.corrector",
    ),
    BadRequest("wrong method", "", 405, CHAT, method="GET"),
    BadRequest("unknown path", "{}", 404, "/v1/nothing", path="/v1/nothing"),
    BadRequest("oversized body", " " * 5_000_000, 413, "larger than"),
)


def good_chat(model: str) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": "What is a bridge?"}],
        "temperature": 0,
        "max_tokens": 16,
    }


def text_of(client: httpx.Client, model: str) -> str:
    reply = client.post(CHAT, json=good_chat(model))
    reply.raise_for_status()
    return str(reply.json()["choices"][0]["message"]["content"])


def problem_of(client: httpx.Client, bad: BadRequest, model: str) -> str | None:
    """What is wrong with the server's answer to a bad request."""
    body = bad.body if isinstance(bad.body, str) else json.dumps(good_chat(model) | bad.body)
    response = client.request(bad.method, bad.path, content=body, headers=JSON_HEADERS)
    try:
        error = response.json()["error"]
        is_right = (
            response.status_code == bad.status
            and set(error) == {"message", "type", "param", "code"}
            and bad.hint in error["message"]
            and error["param"] == bad.param
        )
    except (ValueError, KeyError, TypeError):
        is_right = False
    return None if is_right else f"{response.status_code} {response.text[:500]}"


def run_requests(base_url: str) -> dict[str, str | None]:
    """Problems by case; one good request runs all the time."""
    with httpx.Client(base_url=base_url, timeout=120) as client, ThreadPoolExecutor(1) as pool:
        model = str(client.get("/v1/models").json()["data"][0]["id"])
        expected = text_of(client, model)
        problems: dict[str, str | None] = {}
        for bad in BAD_REQUESTS:
            beside = pool.submit(text_of, client, model)
            problems[bad.name] = problem_of(client, bad, model)
            text = beside.result()
            if text != expected and problems[bad.name] is None:
                problems[bad.name] = f"a request beside it changed: {text!r}, not {expected!r}"
        health = client.get("/health")
        is_alive = health.status_code == 200 and text_of(client, model) == expected
        problems["the server goes on"] = None if is_alive else health.text
        return problems


def check_config_typo(config: Path) -> str | None:
    """A misspelt key of the config file is named, with the right one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "typo.yaml"
        file.write_text(config.read_text().replace("target:", "tarket:", 1))
        command = [sys.executable, "-m", "deployments.config", str(file)]
        result = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
    is_right = (
        result.returncode == 1 and "'tarket'" in result.stderr and "'target'" in result.stderr
    )
    return None if is_right else f"exit {result.returncode}: {result.stdout}{result.stderr}"


def check_missing(**args: Any) -> str | None:
    """A checkpoint that is not there is named, whichever of them it is."""
    try:
        check(AppArgs(**args))
    except DcocoError as error:
        return None if "missing-checkpoint" in str(error) else f"does not name it: {error}"
    return "was accepted"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=REPOSITORY / "serve_config.yaml")
    config: Path = parser.parse_args().config
    missing = "./missing-checkpoint"
    offline: dict[str, Callable[[], str | None]] = {
        "config typo": lambda: check_config_typo(config),
        "missing target": lambda: check_missing(target=missing),
        "missing drafter": lambda: check_missing(drafter=missing),
        "missing corrector": lambda: check_missing(correctors={"none": None, "dcoco": missing}),
    }
    problems = {name: case() for name, case in offline.items()}
    with running_server(config) as server:
        problems |= run_requests(server.base_url)
    for name, problem in problems.items():
        if problem is not None:
            print(f"{name}: {problem}", file=sys.stderr)
    cases = {name: problem is None for name, problem in problems.items()}
    print(json.dumps({"ok": all(cases.values()), "cases": cases}))
    return 0 if all(cases.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
