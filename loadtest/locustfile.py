"""Chat requests against an OpenAI server, with the figures of speculative decoding.

    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 --headless -u 16 -r 16 -t 2m

Closed loop: a client sends its next request when the last one has ended. Locust rounds its own
statistics, so every request is also kept as a line of JSON in `--samples`, one file a process:
`python -m loadtest.summary FILE...` reads them.
"""

from __future__ import annotations

from locust import FastHttpUser, events, task
from locust.exception import StopUser
from locust.runners import MasterRunner, WorkerRunner

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import gevent

from loadtest.replies import Reply, read_stream, read_whole
from loadtest.samples import Sample, SampleFile

PLAIN = "plain"
SERVER_GONE = "server_gone"
MAX_REFUSALS = 3  # in a row and a second apart, before a client takes the server for dead
STREAM_GRACE_S = 120.0
QUESTIONS = Path(__file__).parent / "datasets" / "questions.jsonl"


@events.init_command_line_parser.add_listener
def add_options(parser: Any) -> None:
    group = parser.add_argument_group("Chat requests")
    group.add_argument("--corrector", default="", help="arm: a corrector's name, or plain")
    group.add_argument("--dataset", default=str(QUESTIONS), help='JSON lines with a "prompt"')
    group.add_argument("--temperature", type=float, default=0.0)
    group.add_argument("--max-tokens", type=int, default=64)
    group.add_argument("--served-model", default="", help="default: the server's first model")
    group.add_argument("--no-stream", action="store_true", help="ask for whole replies")
    group.add_argument("--samples", default="", help="folder for one JSONL file a process")


def read_prompts(path: Path) -> list[str]:
    """The prompts of a dataset. Raises ValueError naming the first line that has none."""
    prompts = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            prompts.append(str(json.loads(line)["prompt"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f'{path}:{number} has no "prompt": {line[:80]!r}') from error
    if not prompts:
        raise ValueError(f"{path} has no prompts")
    return prompts


class Run:
    """What the clients of one process share."""

    def __init__(self, options: Any, *, has_clients: bool) -> None:
        self.prompts = read_prompts(Path(options.dataset))
        self.turns = itertools.count()
        self.file: SampleFile | None = None
        if options.samples and has_clients:
            self.file = SampleFile(Path(options.samples) / f"samples-{os.getpid()}.jsonl")

    def next_prompt(self) -> tuple[int, str]:
        """The number of a request, from 0, and its prompt."""
        turn = next(self.turns)
        return turn, self.prompts[turn % len(self.prompts)]


@events.init.add_listener
def prepare(environment: Any, runner: Any, **_: Any) -> None:
    """Streams in flight may end after `-t`, and a dead server ends the run."""
    environment.stop_timeout = environment.stop_timeout or STREAM_GRACE_S
    if isinstance(runner, MasterRunner):
        runner.register_message(SERVER_GONE, lambda **_: runner.quit())


@events.test_start.add_listener
def start(environment: Any, **_: Any) -> None:
    has_clients = not isinstance(environment.runner, MasterRunner)
    environment.run = Run(environment.parsed_options, has_clients=has_clients)


@events.quitting.add_listener
def judge(environment: Any, **_: Any) -> None:
    """Any failed request, or none at all, makes the run a failure."""
    total = environment.stats.total
    if total.num_failures or not total.num_requests:
        environment.process_exit_code = 1


class ChatUser(FastHttpUser):
    """One client."""

    network_timeout = 600.0

    def on_start(self) -> None:
        self.refusals = 0
        self.model = self.environment.parsed_options.served_model
        if not self.model:
            with self.client.get("/v1/models", catch_response=True) as response:
                if response.status_code == 200:
                    self.model = response.json()["data"][0]["id"]
                    response.success()
                else:
                    response.failure(f"no model list: {response.error or response.status_code}")

    @task
    def chat(self) -> None:
        options = self.environment.parsed_options
        turn, prompt = self.environment.run.next_prompt()
        body = chat_body(options, self.model, turn, prompt)
        sent_s, since = time.time(), time.perf_counter()
        with self.client.post(
            "/v1/chat/completions", json=body, stream=body["stream"], catch_response=True
        ) as response:
            reply = read_reply(response, since, streamed=body["stream"])
            response.request_meta["response_time"] = 1e3 * reply.end_s
            response.request_meta["response_length"] = reply.num_tokens
            if reply.status == "ok":
                response.success()
            else:
                response.failure(f"{reply.status}: {reply.error}")
        num_clients = options.num_users or 1
        sample = to_sample(reply, options.corrector or "default", num_clients, sent_s)
        if (run := self.environment.run).file:
            run.file.write(sample)
        self.report(sample)
        self.refusals = self.refusals + 1 if response.status_code == 0 else 0
        if self.refusals:
            self.give_up() if self.refusals == MAX_REFUSALS else time.sleep(1)

    def give_up(self) -> None:
        """Nobody listens: end the run with what it has."""
        runner = self.environment.runner
        if isinstance(runner, WorkerRunner):
            runner.send_message(SERVER_GONE)
        elif runner is not None:
            gevent.spawn(runner.quit)  # not from a client, which quit() waits for
        raise StopUser

    def report(self, sample: Sample) -> None:
        """Rows of their own in Locust's table; milliseconds, except for the acceptance length."""
        if sample.status != "ok":
            return
        length = (sample.speculation or {}).get("mean_acceptance_length")
        rows = [
            *[("TTFT", 1e3 * s) for s in [sample.ttft_s] if s is not None],
            *[("TPOT", 1e3 * s) for s in [sample.tpot_s] if s is not None],
            *[("inter-chunk latency", 1e3 * s) for s in sample.inter_chunk_s],
            *[("acceptance length", n) for n in [length] if n is not None],
        ]
        for name, value in rows:
            # Not the request event: these rows are no requests and must not count as such.
            self.environment.stats.get(name, "LLM").log(value, 0)


def chat_body(options: Any, model: str, turn: int, prompt: str) -> dict[str, Any]:
    """The request's body; the arm `plain` switches speculation off."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        "seed": turn,
        "stream": not options.no_stream,
    }
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    if options.corrector == PLAIN:
        body["speculation"] = {"enabled": False}
    elif options.corrector:
        body["speculation"] = {"corrector": options.corrector}
    return body


def read_reply(response: Any, since: float, *, streamed: bool) -> Reply:
    """The reply behind a response of Locust's, which has status 0 where there was none."""
    if response.status_code != 200:
        text = response.text if response.status_code else response.error
        error = f"HTTP {response.status_code}: {str(text)[:200]}"
        end_s = time.perf_counter() - since
        return Reply(end_s=end_s, status="http_error", error=error)
    if not streamed:
        return read_whole(response.content, since)
    # readline, since the iterators of this client wait for a kibibyte before they give a line
    return read_stream(lambda: bytes(response.stream.readline(b"\n")), since)


def to_sample(reply: Reply, arm: str, num_clients: int, sent_s: float) -> Sample:
    return Sample(
        arm=arm,
        num_clients=num_clients,
        sent_s=sent_s,
        end_s=reply.end_s,
        chunk_s=tuple(reply.chunk_s),
        num_tokens=reply.num_tokens,
        num_prompt_tokens=reply.num_prompt_tokens,
        finish_reason=reply.finish_reason,
        status=reply.status,
        error=reply.error,
        speculation=reply.speculation,
    )
