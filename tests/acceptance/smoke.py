"""`make smoke`: the default server answers through the `openai` client what plain decoding says.

Chats greedy and seeded, streamed and not, alone and side by side. A text may differ from plain
decoding's only from a token on where the target's two best were nearly tied; such texts are counted
as `near_ties`. Ends with one line of JSON; `acceptance_length` is the greedy chats'.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from openai import OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from dcoco_core.decode import collect, decode
from dcoco_core.prompts import own_prompts
from dcoco_core.sampling.noise import Stream, gumbel, stream_keys
from dcoco_core.target.folder import DEFAULT_TARGET, resolve_target
from dcoco_core.target.interface import PackedRows, TargetModel
from dcoco_core.target.loading import load_target
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.target.verifier import TargetVerifier, VerifierSettings
from dcoco_core.types import Limits, Request, SamplingParams
from tests.acceptance.server import REPOSITORY, Server, end_on_sigterm, running_server

MIN_ACCEPTANCE_LENGTH = 1.5
NEAR_TIE = 1e-3
MAX_TOKENS = 48
TEMPERATURE = 0.8


@dataclass(frozen=True, slots=True)
class Case:
    """One chat, greedy or seeded."""

    prompt: str
    seed: int | None

    @property
    def sampling(self) -> SamplingParams:
        if self.seed is None:
            return SamplingParams()
        return SamplingParams(TEMPERATURE, seed=self.seed, noise_key=self.seed)

    @property
    def options(self) -> dict[str, Any]:
        seeded = {"temperature": TEMPERATURE, "seed": self.seed}
        return {"max_tokens": MAX_TOKENS, **({"temperature": 0} if self.seed is None else seeded)}

    @property
    def messages(self) -> list[ChatCompletionUserMessageParam]:
        return [{"role": "user", "content": self.prompt}]


class PlainDecoding:
    """What plain decoding in this process answers, with the same target."""

    def __init__(self, cases: Sequence[Case]) -> None:
        folder = resolve_target(DEFAULT_TARGET)
        self._tokenizer = TargetTokenizer(folder)
        self._target: TargetModel = load_target(folder)
        self._requests = [
            Request(
                str(index),
                tuple(self._tokenizer.encode_chat([dict(message) for message in case.messages])),
                Limits(MAX_TOKENS, self._tokenizer.eos_token_ids),
                case.sampling,
            )
            for index, case in enumerate(cases)
        ]
        verifier = TargetVerifier(self._target, VerifierSettings(max_slots=len(cases)))
        tokens = collect(decode(self._requests, verifier))
        self._tokens = [tokens[request.request_id] for request in self._requests]
        self.texts = [self._tokenizer.decode(ids) for ids in self._tokens]

    def is_near_tie(self, index: int, text: str) -> bool:
        """Whether the target was nearly undecided where `text` leaves the plain one."""
        request, tokens = self._requests[index], self._tokens[index]
        length = 0
        while length < len(tokens) and text.startswith(
            self._tokenizer.decode(tokens[: length + 1])
        ):
            length += 1
        prefix = torch.tensor(request.prompt_ids + tokens[:length])
        cache = self._target.new_cache(1, len(prefix))
        with torch.inference_mode():
            output = self._target.forward(prefix, PackedRows((0,), (0,), (len(prefix),)), cache, ())
            scores = self._target.logits(output.hidden[-1:])[0].double()
        if request.sampling.seed is not None:
            keys = stream_keys([request.sampling], Stream.TARGET)
            noise = gumbel(keys, torch.tensor([len(prefix)]), torch.arange(len(scores)))
            scores = scores / TEMPERATURE + noise.flatten()
        best, second = scores.topk(2).values.tolist()
        return bool(best - second < NEAR_TIE)


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    num_tokens: int
    num_drafts: int
    num_accepted: int


def chat(client: OpenAI, case: Case) -> Answer:
    reply: Any = client.chat.completions.create(
        model=DEFAULT_TARGET, messages=case.messages, **case.options
    )
    speculative = reply.metrics["speculative_decoding"]
    return Answer(
        reply.choices[0].message.content,
        reply.usage.completion_tokens,
        speculative["num_spec_steps"],
        speculative["num_accepted_draft_tokens"],
    )


def chat_streamed(client: OpenAI, case: Case) -> str:
    stream: Any = client.chat.completions.create(
        model=DEFAULT_TARGET, messages=case.messages, stream=True, **case.options
    )
    parts = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    return "".join(parts)


def acceptance_length(answers: Sequence[Answer]) -> float:
    """Tokens committed per target pass that had a draft."""
    num_drafts = sum(answer.num_drafts for answer in answers)
    num_accepted = sum(answer.num_accepted for answer in answers)
    return round(1 + num_accepted / max(1, num_drafts), 3)


def run(server: Server, cases: Sequence[Case], plain: PlainDecoding) -> dict[str, Any]:
    """Asks for every case three times, and compares."""
    client = OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0, timeout=120)
    started = time.monotonic()
    answers = [chat(client, case) for case in cases]
    elapsed_s = time.monotonic() - started
    streamed = [chat_streamed(client, case) for case in cases]
    with ThreadPoolExecutor(len(cases)) as pool:
        batched = [answer.text for answer in pool.map(lambda case: chat(client, case), cases)]
    near_ties, differences = 0, 0
    ways = {"alone": [a.text for a in answers], "streamed": streamed, "batched": batched}
    for way, texts in ways.items():
        for index, (text, wanted) in enumerate(zip(texts, plain.texts, strict=True)):
            if text == wanted:
                continue
            if plain.is_near_tie(index, text):
                near_ties += 1
            else:
                differences += 1
                note = f"{way}, seed {cases[index].seed}: {text!r}\n  plain: {wanted!r}"
                print(note, file=sys.stderr)
    greedy = [a for a, case in zip(answers, cases, strict=True) if case.seed is None]
    seeded = [a for a, case in zip(answers, cases, strict=True) if case.seed is not None]
    acceptance = acceptance_length(greedy)
    return {
        "ok": differences == 0 and acceptance >= MIN_ACCEPTANCE_LENGTH,
        "text_equal": differences == 0,
        "acceptance_length": acceptance,
        "acceptance_length_seeded": acceptance_length(seeded),
        "ready_s": round(server.ready_s, 1),
        "tokens_per_s": round(sum(answer.num_tokens for answer in answers) / elapsed_s, 1),
        "texts": sum(map(len, ways.values())),
        "near_ties": near_ties,
    }


def report(step: str) -> None:
    print(f"smoke: {step}", file=sys.stderr, flush=True)


def main() -> int:
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=REPOSITORY / "serve_config.yaml")
    parser.add_argument("--prompts", type=int, default=4, help="each greedy and seeded")
    arguments = parser.parse_args()
    prompts = own_prompts(evaluation=True)[: arguments.prompts]
    cases = [Case(prompt, seed) for prompt in prompts for seed in (None, 7)]
    report(f"plain decoding of {len(cases)} chats in this process")
    plain = PlainDecoding(cases)
    report("starting the server")
    # Ctrl-C here, SIGTERM in the other tests: neither may leave a process behind.
    with running_server(arguments.config, stop_signal=signal.SIGINT) as server:
        report(f"ready after {server.ready_s:.1f} s; asking for every chat three times")
        result = run(server, cases, plain)
        report("stopping the server")
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
