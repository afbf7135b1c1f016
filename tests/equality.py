"""Compares the text of speculative decoding with plain decoding's, and explains a difference.

With `numerics: exact` any difference is a failure. With fast numerics, logits move by up to 6e-5
between batch shapes, so one is allowed where the two tokens were nearly tied for the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from dcoco_core.decode import collect, decode
from dcoco_core.evaluation.stack import Stack
from dcoco_core.sampling.noise import Stream, gumbel, stream_keys
from dcoco_core.target.interface import PackedRows
from dcoco_core.types import Limits, Request, Rule, SamplingParams, Speculation

GREEDY = SamplingParams()
NEAR_TIE = 1e-3


def seeded(seed: int) -> SamplingParams:
    """The seeded setting of the equality tests."""
    return SamplingParams(temperature=0.8, top_k=50, top_p=0.9, seed=seed, noise_key=seed)


@dataclass(frozen=True)
class Outcome:
    """What a comparison found: texts compared, near-ties, and differences nothing explains."""

    num_texts: int
    near_ties: tuple[str, ...]
    failures: tuple[str, ...]


def requests(stack: Stack, prompts: Iterable[str], num_tokens: int) -> list[Request]:
    """Every prompt greedily and seeded, in turns, so that batches are mixed."""
    stop_ids = frozenset(stack.tokenizer.eos_token_ids)
    made = []
    for index, prompt in enumerate(prompts):
        for rule, sampling in (("greedy", GREEDY), ("seeded", seeded(1000 + index))):
            made.append(
                Request(
                    request_id=f"{rule}-{index}",
                    prompt_ids=stack.chat(prompt),
                    limits=Limits(num_tokens, stop_ids),
                    sampling=sampling,
                )
            )
    return made


def plain_texts(stack: Stack, wanted: list[Request]) -> dict[str, tuple[int, ...]]:
    """Every request decoded plainly, alone."""
    verifier = stack.verifier(1, drafting=False)
    return collect(decode(wanted, verifier))


def compare(
    stack: Stack,
    wanted: list[Request],
    reference: dict[str, tuple[int, ...]],
    *,
    corrector: str,
    block_size: int,
    num_slots: int,
) -> Outcome:
    """Decodes `wanted` speculatively, `num_slots` at a time, and compares with `reference`.

    Block size 1 is plain decoding through the same stages.
    """
    speculation = Speculation(block_size - 1, corrector)
    texts = collect(
        decode(
            [replace(request, speculation=speculation) for request in wanted],
            stack.verifier(num_slots),
            stack.drafter(max(block_size - 1, 1), num_slots),
            stack.correctors[corrector],
        )
    )
    near_ties: list[str] = []
    failures: list[str] = []
    for request in wanted:
        expected, found = reference[request.request_id], texts[request.request_id]
        if expected == found:
            continue
        length = min(len(expected), len(found))
        first = next((i for i in range(length) if expected[i] != found[i]), length)
        where = f"{request.request_id}, {corrector}, block {block_size}, token {first}"
        if length == first:
            failures.append(f"{where}: one text is longer")
            continue
        gap = _gap(stack, request, expected[:first], expected[first], found[first])
        (near_ties if gap < NEAR_TIE else failures).append(f"{where}: gap {gap:.2e}")
    return Outcome(len(wanted), tuple(near_ties), tuple(failures))


def _gap(
    stack: Stack, request: Request, prefix: tuple[int, ...], expected: int, found: int
) -> float:
    """How far apart the target scores two tokens after prompt + prefix."""
    tokens = torch.tensor(request.prompt_ids + prefix)
    cache = stack.target.new_cache(1, len(tokens))
    with torch.inference_mode():
        rows = PackedRows((0,), (0,), (len(tokens),))
        output = stack.target.forward(tokens, rows, cache, ())
        scores = stack.target.logits(output.hidden[-1:])[0].double()
    pair = torch.tensor([expected, found])
    sampling = request.sampling
    values = scores[pair]
    if sampling.rule is Rule.COUPLED:
        keys = stream_keys([sampling], Stream.TARGET)
        noise = gumbel(keys, torch.tensor([len(tokens)]), pair)
        values = values / sampling.temperature + noise
    return float((values[0] - values[1]).abs())
