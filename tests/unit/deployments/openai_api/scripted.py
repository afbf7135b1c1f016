"""A backend that says what it is told to, and a client for the application in front of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from dcoco_core.types import FinishReason, Request, Speculation, Verdict
from deployments.openai_api.application import create_app
from deployments.openai_api.backend import Health, ModelFacts
from deployments.openai_api.settings import HttpSettings
from deployments.openai_api.tokenizer import ApiTokenizer

MODEL = "smollm2"
FACTS = ModelFacts(MODEL, 256, Speculation(7, "dcoco"), 15, ("none", "dcoco"))
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
READY = Health(True, {"verifier": "ready", "drafter": "ready", "corrector": "ready"})

Step = Sequence[int] | Exception | asyncio.Event


@dataclass
class ScriptedBackend:
    """Plays `steps` for every request: tokens of a round, an error, or an event to wait for.

    The first round drafts nothing, as a prefill does; later ones accept all but their last token.
    """

    steps: list[Step] = field(default_factory=list)
    finish_reason: FinishReason | None = FinishReason.STOP
    state: Health | Exception = READY
    requests: list[Request] = field(default_factory=list)
    num_open: int = 0
    num_rounds: int = 0
    skipped: int = 0  # tokens that are left out between the first and the second round
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def reset(self) -> None:
        self.steps, self.finish_reason, self.state = [], FinishReason.STOP, READY
        self.requests, self.num_open, self.num_rounds, self.skipped = [], 0, 0, 0
        self.opened, self.closed = asyncio.Event(), asyncio.Event()

    async def generate(self, request: Request) -> AsyncGenerator[Verdict, None]:
        self.requests.append(request)
        self.num_open += 1
        self.opened.set()
        self.closed.clear()
        start = len(request.prompt_ids)
        try:
            for index, step in enumerate(self.steps):
                await asyncio.sleep(0)
                if isinstance(step, asyncio.Event):
                    await step.wait()
                    continue
                if isinstance(step, Exception):
                    raise step
                is_last = index == len(self.steps) - 1
                is_prefill = start == len(request.prompt_ids)
                self.num_rounds += 1
                yield Verdict(
                    request_id=request.request_id,
                    generation=0,
                    start=start,
                    token_ids=tuple(step),
                    num_drafted=None if is_prefill else max(7, len(step) - 1),
                    num_accepted=0 if is_prefill else len(step) - 1,
                    finish_reason=self.finish_reason if is_last else None,
                )
                start += len(step) + self.skipped
        finally:
            self.num_open -= 1
            self.closed.set()

    async def health(self) -> Health:
        if isinstance(self.state, Exception):
            raise self.state
        return self.state


@dataclass
class Api:
    """The application over a scripted backend, called without a network."""

    backend: ScriptedBackend
    tokenizer: ApiTokenizer
    settings: HttpSettings = field(default_factory=HttpSettings)
    facts: ModelFacts = FACTS

    def __post_init__(self) -> None:
        self.app = create_app(self.backend, self.facts, self.tokenizer, self.settings)

    def play(self, *steps: Step, finish_reason: FinishReason | None = FinishReason.STOP) -> None:
        self.backend.steps = list(steps)
        self.backend.finish_reason = finish_reason

    def say(self, *texts: str) -> None:
        """One round per text, the end-of-text token at the end of the last."""
        rounds: list[Step] = [self.ids(text) for text in texts]
        self.play(*rounds[:-1], [*self.ids(texts[-1]), min(self.tokenizer.eos_token_ids)])

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.raw.encode(text, add_special_tokens=False).ids)

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **options)

    async def post(self, path: str, body: Any) -> httpx.Response:
        return await self.request("POST", path, json=body)

    async def chat(self, **params: Any) -> httpx.Response:
        return await self.post(CHAT, chat_body(**params))


def chat_body(**params: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], **params}


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The JSON of every event; the stream must end in [DONE]."""
    payloads = payloads_of(response)
    assert payloads[-1] == "[DONE]"
    return [json.loads(payload) for payload in payloads[:-1]]


def payloads_of(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    parts = response.text.split("\n\n")
    assert parts[-1] == ""
    assert all(part.startswith("data: ") for part in parts[:-1])
    return [part.removeprefix("data: ") for part in parts[:-1]]


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(
        choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]
    )
