"""`make smoke`: the default server answers through the `openai` client what plain decoding says.

Runs with `numerics: exact`, where no near-tie can fall differently, so that every text has to be
equal: greedy and seeded, streamed and not, alone and side by side. Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from openai import OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from dcoco_core.decode import collect, decode
from dcoco_core.prompts import own_prompts
from dcoco_core.target.folder import DEFAULT_TARGET, resolve_target
from dcoco_core.target.loading import load_target
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.target.verifier import TargetVerifier, VerifierSettings
from dcoco_core.types import Limits, Request, SamplingParams
from tests.acceptance.server import REPOSITORY, Server, running_server

MIN_ACCEPTANCE_LENGTH = 1.5
NUM_PROMPTS = 4
MAX_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Case:
    """One chat, greedy or seeded."""

    prompt: str
    seed: int | None

    @property
    def sampling(self) -> SamplingParams:
        if self.seed is None:
            return SamplingParams()
        return SamplingParams(0.8, top_p=0.9, seed=self.seed, noise_key=self.seed)

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"temperature": 0, "max_tokens": MAX_TOKENS}
        if self.seed is not None:
            options |= {"temperature": 0.8, "top_p": 0.9, "seed": self.seed}
        return options

    @property
    def messages(self) -> list[ChatCompletionUserMessageParam]:
        return [{"role": "user", "content": self.prompt}]


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    num_tokens: int
    num_drafts: int
    num_accepted: int


def expected_texts(cases: Sequence[Case]) -> list[str]:
    """Plain decoding in this process, with the same target."""
    folder = resolve_target(DEFAULT_TARGET)
    tokenizer = TargetTokenizer(folder)
    verifier = TargetVerifier(
        load_target(folder, numerics="exact"), VerifierSettings(max_slots=len(cases))
    )
    requests = [
        Request(
            str(index),
            tuple(tokenizer.encode_chat(case.messages)),
            Limits(MAX_TOKENS, tokenizer.eos_token_ids),
            case.sampling,
        )
        for index, case in enumerate(cases)
    ]
    tokens = collect(decode(requests, verifier))
    return [tokenizer.decode(tokens[str(index)]) for index in range(len(cases))]


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


def run(server: Server, cases: Sequence[Case], expected: Sequence[str]) -> dict[str, Any]:
    """Asks for every case three times, and compares."""
    client = OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0, timeout=120)
    started = time.monotonic()
    answers = [chat(client, case) for case in cases]
    elapsed_s = time.monotonic() - started
    streamed = [chat_streamed(client, case) for case in cases]
    with ThreadPoolExecutor(len(cases)) as pool:
        side_by_side = [answer.text for answer in pool.map(lambda case: chat(client, case), cases)]
    is_equal = True
    ways = {"alone": [a.text for a in answers], "streamed": streamed, "batched": side_by_side}
    for way, texts in ways.items():
        for case, text, wanted in zip(cases, texts, expected, strict=True):
            if text != wanted:
                is_equal = False
                print(f"{way}, seed {case.seed}: {text!r}\n  plain: {wanted!r}", file=sys.stderr)
    num_drafts = sum(answer.num_drafts for answer in answers)
    acceptance = 1 + sum(answer.num_accepted for answer in answers) / max(1, num_drafts)
    return {
        "ok": is_equal and num_drafts > 0 and acceptance >= MIN_ACCEPTANCE_LENGTH,
        "text_equal": is_equal,
        "acceptance_length": round(acceptance, 3),
        "ready_s": round(server.ready_s, 1),
        "tokens_per_s": round(sum(answer.num_tokens for answer in answers) / elapsed_s, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="serve_config.yaml")
    arguments = parser.parse_args()
    prompts = own_prompts(evaluation=True)[:NUM_PROMPTS]
    cases = [Case(prompt, seed) for prompt in prompts for seed in (None, 7)]
    expected = expected_texts(cases)
    with running_server(REPOSITORY / arguments.config, {"numerics": "exact"}) as server:
        result = run(server, cases, expected)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
