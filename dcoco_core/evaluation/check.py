"""Whether replayed answers say what real decoding does, on a sample of the prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dcoco_core.evaluation.measure import Sizes, decode_requests
from dcoco_core.evaluation.replay import NUM_ORACLE_CANDIDATES, Recorded, replay
from dcoco_core.evaluation.stack import Stack
from dcoco_core.types import Speculation


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """Prompts that were really decoded with one corrector.

    Attributes:
        num_prompts: how many.
        num_same_text: those answered with the recorded text. Arithmetic that depends on the batch
            can turn a near tie the other way and begin another text.
        num_same_counters: of those, the ones with the very rounds that the replay found.
    """

    num_prompts: int
    num_same_text: int
    num_same_counters: int


def check_replay(
    stack: Stack, recorded: Sequence[Recorded], sizes: Sizes
) -> dict[str, ReplayCheck]:
    """Decodes recorded requests with every corrector of the stack and compares with the replay."""
    drafter = stack.drafter(sizes.num_draft_tokens, sizes.num_rows, NUM_ORACLE_CANDIDATES)
    correctors = stack.correctors
    found = replay(recorded, stack.target, stack.projection, drafter, correctors, sizes.num_rows)
    replayed = {recorded[number].request.request_id: answer for number, answer in found}
    checks = {}
    for name in correctors:
        speculation = Speculation(sizes.num_draft_tokens, name)
        requests = [replace(one.request, speculation=speculation) for one in recorded]
        num_same_text = num_same_counters = 0
        for request_id, response_ids, record in decode_requests(stack, requests, name, sizes):
            answer = replayed[request_id]
            if answer.response_ids == response_ids:
                num_same_text += 1
                num_same_counters += answer.speculate(name) == record
        checks[name] = ReplayCheck(len(requests), num_same_text, num_same_counters)
    return checks
