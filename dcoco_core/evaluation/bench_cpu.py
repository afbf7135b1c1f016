"""`make bench-cpu`: plain and speculative decoding against transformers' generate, one client.

Same weights, dtype, threads and prompts; end tokens are ignored, so that every arm generates the
same number of tokens. The arms take turns prompt by prompt in one process, in an order that
rotates, and a ratio is the median over all (repeat, prompt) pairs: both sides of a pair ran within
seconds of each other. Prints a table, then one line of JSON; details go to runs/bench-cpu.json.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import AutoModelForCausalLM

from dcoco_core.decode import decode
from dcoco_core.evaluation.stack import Stack, load_stack
from dcoco_core.evaluation.timed import TimedStages
from dcoco_core.prompts import own_prompts
from dcoco_core.provenance import describe_run
from dcoco_core.target.interface import PackedRows
from dcoco_core.types import Limits, Request, Speculation

_CONTEXT = 200  # positions before the timed forwards of `_steps`
_STEP_REPEATS = 15


class _Arms:
    """The three ways to generate `num_tokens` greedy tokens after a prompt."""

    def __init__(self, stack: Stack, num_tokens: int, num_draft_tokens: int, corrector: str):
        self._num_tokens = num_tokens
        self._speculation = Speculation(num_draft_tokens, corrector)
        self._plain = stack.verifier(1, drafting=False)
        self.stages = TimedStages(
            stack.verifier(1), stack.drafter(num_draft_tokens, 1), stack.correctors[corrector]
        )
        self.reference: Any = AutoModelForCausalLM.from_pretrained(
            stack.folder, dtype=torch.float32
        )

    def plain(self, prompt_ids: tuple[int, ...]) -> list[int]:
        request = Request("plain", prompt_ids, Limits(self._num_tokens))
        return [token for v in decode([request], self._plain) for token in v.token_ids]

    def speculative(self, prompt_ids: tuple[int, ...]) -> list[int]:
        request = Request(
            "speculative", prompt_ids, Limits(self._num_tokens), speculation=self._speculation
        )
        verdicts = self.stages.decode([request])
        return [token for verdict in verdicts for token in verdict.token_ids]

    def transformers(self, prompt_ids: tuple[int, ...]) -> list[int]:
        inputs = torch.tensor([prompt_ids])
        with torch.inference_mode():
            output = self.reference.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                do_sample=False,
                max_new_tokens=self._num_tokens,
                min_new_tokens=self._num_tokens,
            )
        return [int(token) for token in output[0, len(prompt_ids) :]]


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _steps(stack: Stack, reference: Any) -> dict[str, float]:
    """Median seconds of one forward with logits at a context of 200: ours 1, ours 16, theirs 1."""
    cache = stack.target.new_cache(1, _CONTEXT + 16)
    context = torch.arange(100, 100 + _CONTEXT)

    def ours(count: int) -> None:
        rows = PackedRows((0,), (_CONTEXT,), (count,))
        output = stack.target.forward(context[:count], rows, cache, ())
        stack.target.logits(output.hidden)

    with torch.inference_mode():
        stack.target.forward(context, PackedRows((0,), (0,), (_CONTEXT,)), cache, ())
        past = reference(context[None], use_cache=True).past_key_values

        def theirs() -> None:
            reference(context[None, :1], past_key_values=past, use_cache=True)
            past.crop(-1)

        forwards = {"decode1": lambda: ours(1), "verify16": lambda: ours(16), "reference": theirs}
        seconds: dict[str, list[float]] = {name: [] for name in forwards}
        for repeat in range(_STEP_REPEATS + 2):
            for name, forward in forwards.items():
                elapsed = _timed(forward)
                if repeat >= 2:  # the first two warm up
                    seconds[name].append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _quartiles(values: list[float]) -> list[float]:
    return [round(value, 3) for value in statistics.quantiles(values, n=4)]


def main(
    prompts: Annotated[int, typer.Option(help="Held-out prompts.")] = 8,
    tokens: Annotated[int, typer.Option(help="Tokens generated per prompt.")] = 96,
    repeats: Annotated[int, typer.Option(help="Rounds over all prompts; 3 or more.")] = 3,
    num_draft_tokens: Annotated[int, typer.Option(help="Proposals verified in a round.")] = 4,
    corrector: Annotated[str, typer.Option(help="Corrector of the speculative arm.")] = "dcoco",
    threads: Annotated[int, typer.Option(help="CPU threads of every arm.")] = 2,
    out: Annotated[Path, typer.Option(help="Where details go.")] = Path("runs/bench-cpu.json"),
) -> None:
    """Measures the CPU ratios of docs/results."""
    stack = load_stack(num_threads=threads)
    arms = _Arms(stack, tokens, num_draft_tokens, corrector)
    ways = {
        "plain": arms.plain,
        "speculative": arms.speculative,
        "transformers": arms.transformers,
    }
    chosen = [stack.chat(prompt) for prompt in own_prompts(evaluation=True)[:prompts]]
    for way in ways.values():
        way(chosen[0][:20])  # warm-up
    steps = _steps(stack, arms.reference)
    arms.stages.reset()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    num_equal = 0
    console = Console(stderr=True)
    turns = [(repeat, prompt) for repeat in range(repeats) for prompt in range(len(chosen))]
    for turn, (_, prompt) in enumerate(track(turns, "decoding", console=console)):
        texts = {}
        names = list(ways)
        for name in names[turn % 3 :] + names[: turn % 3]:
            start = time.perf_counter()
            texts[name] = ways[name](chosen[prompt])
            seconds[name].append(time.perf_counter() - start)
        num_equal += texts["plain"] == texts["speculative"] == texts["transformers"]

    def ratios(numerator: str, denominator: str) -> list[float]:
        """How many times as fast the first is, pair by pair."""
        pairs = zip(seconds[denominator], seconds[numerator], strict=True)
        return [slow / fast for slow, fast in pairs]

    paired = {
        "plain_over_transformers": ratios("plain", "transformers"),
        "speculative_over_transformers": ratios("speculative", "transformers"),
        "speculative_over_plain": ratios("speculative", "plain"),
    }
    result: dict[str, object] = {
        **{name: round(statistics.median(values), 3) for name, values in paired.items()},
        "verify16_over_decode1": round(steps["verify16"] / steps["decode1"], 3),
        "verify16_over_transformers_step": round(steps["verify16"] / steps["reference"], 3),
        "correct_over_round": round(arms.stages.share("correct"), 4),
        "acceptance_length": round(arms.stages.acceptance_length, 3),
        "tokens_per_s": {
            name: round(tokens / statistics.median(values), 2) for name, values in seconds.items()
        },
        "equal_texts": f"{num_equal}/{len(turns)}",
    }
    details = {
        **describe_run(),
        "result": result,
        "quartiles": {name: _quartiles(values) for name, values in paired.items()},
        "step_ms": {name: round(value * 1000, 2) for name, value in steps.items()},
        "stage_share": arms.stages.shares,
        "seconds": seconds,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(details, indent=1))
    table = Table(title=f"{prompts} prompts x {tokens} tokens x {repeats}, details in {out}")
    table.add_column("figure")
    table.add_column("value")
    table.add_column("quartiles over pairs")
    for name, value in result.items():
        table.add_row(name, str(value), str(_quartiles(paired[name])) if name in paired else "")
    console.print(table)
    typer.echo(json.dumps(result))


if __name__ == "__main__":
    typer.run(main)
