"""How fast one client is served: real decoding, plainly and with every corrector.

The ways take turns prompt by prompt, in an order that rotates: the machine's other work then falls
on all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcoco_core.decode import decode
from dcoco_core.evaluation.bootstrap import Columns, Estimate, Figure, Sample
from dcoco_core.evaluation.stack import Stack
from dcoco_core.evaluation.timed import TimedStages
from dcoco_core.types import Limits, Request, Speculation

PLAIN = "plain"
STAGES = ("verify", "draft", "correct")


@dataclass(frozen=True, slots=True)
class Speed:
    """Decoding of some prompts by one client.

    Attributes:
        tokens_per_s: tokens over seconds, prefill included.
        over_plain: the speed against plain decoding, paired by prompt.
        stage_ms: time of verify, draft and correct in a round; empty for PLAIN.
        correct_over_round: the corrector's share of the three; None for PLAIN.
    """

    tokens_per_s: Estimate
    over_plain: Estimate
    stage_ms: dict[str, Estimate]
    correct_over_round: Estimate | None


@dataclass(frozen=True, slots=True)
class DecodingTimes:
    """The speed with one corrector (or PLAIN) over all prompts, the same for all, and by set."""

    total: Speed
    by_set: dict[str, Speed]


def time_decoding(
    stack: Stack,
    prompts: Sequence[tuple[str, tuple[int, ...]]],
    num_tokens: int,
    num_draft_tokens: int,
) -> dict[str, DecodingTimes]:
    """Decodes every prompt plainly and with every corrector, greedily, one client at a time.

    End tokens are ignored, so that all arms generate the same number of tokens.

    Args:
        stack: whose correctors take turns.
        prompts: (set, prompt) pairs.
        num_tokens: generated after each prompt.
        num_draft_tokens: proposals of a round.
    """
    plain = stack.verifier(1, drafting=False)
    drafter = stack.drafter(num_draft_tokens, 1)
    verifier = stack.verifier(1)
    stages = {name: TimedStages(verifier, drafter, c) for name, c in stack.correctors.items()}

    def run(name: str, prompt_ids: tuple[int, ...], length: int) -> list[float]:
        """Seconds in all, in every stage, and the number of rounds."""
        speculation = Speculation(0 if name == PLAIN else num_draft_tokens, name)
        request = Request(name, prompt_ids, Limits(length), speculation=speculation)
        if name == PLAIN:
            return [_timed(lambda: list(decode([request], plain)))]
        timed = stages[name]
        timed.reset()
        elapsed = _timed(lambda: list(timed.decode([request])))
        return [elapsed, *(timed.seconds[stage] for stage in STAGES), float(timed.num_rounds)]

    arms = [PLAIN, *stages]
    for name in arms:
        run(name, prompts[0][1][:16], 8)  # warm-up
    by_set: dict[str, list[list[float]]] = {}
    for turn, (set_name, prompt_ids) in enumerate(prompts):
        shift = turn % len(arms)
        order = arms[shift:] + arms[:shift]
        measured = {name: run(name, prompt_ids, num_tokens) for name in order}
        row = [value for name in arms for value in measured[name]]
        by_set.setdefault(set_name, []).append(row)
    columns = ["seconds plain"]
    columns += [f"{kind} {name}" for name in stages for kind in ("seconds", *STAGES, "rounds")]
    together = Sample([[row for rows in by_set.values() for row in rows]], columns)
    alone = {name: Sample([rows], columns) for name, rows in by_set.items()}
    return {
        arm: DecodingTimes(
            _speed(arm, together, num_tokens),
            {name: _speed(arm, sample, num_tokens) for name, sample in alone.items()},
        )
        for arm in arms
    }


def _speed(arm: str, sample: Sample, num_tokens: int) -> Speed:
    """The figures of one arm; the sample is one set of rows."""

    def correct_share(columns: Columns) -> NDArray[np.float64]:
        total = sum(columns[f"{stage} {arm}"] for stage in STAGES)
        return (columns[f"correct {arm}"] / total)[:, 0]

    def per_round(stage: str) -> Figure:
        return lambda columns: (1000 * columns[f"{stage} {arm}"] / columns[f"rounds {arm}"])[:, 0]

    return Speed(
        tokens_per_s=sample.estimate(lambda c: num_tokens / c[f"seconds {arm}"][:, 0]),
        over_plain=sample.estimate(lambda c: (c["seconds plain"] / c[f"seconds {arm}"])[:, 0]),
        stage_ms={}
        if arm == PLAIN
        else {stage: sample.estimate(per_round(stage)) for stage in STAGES},
        correct_over_round=None if arm == PLAIN else sample.estimate(correct_share),
    )


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
