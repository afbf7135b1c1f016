"""What a decision adds to a request: the one place that knows stop ids, the cap and the bonus.

Text, ids, usage, caches and statistics all derive from what `commit` returns. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dcoco_core.types import FinishReason, Limits, Verdict
from dcoco_core.verification.decision import Decision


@dataclass(frozen=True, slots=True)
class Committed:
    """Tokens made final by one decision, at least one.

    `num_accepted` counts the draft tokens among them. A stop id, if one ended the request, is the
    last of `token_ids`; the text layer drops it.
    """

    token_ids: tuple[int, ...]
    num_accepted: int
    finish_reason: FinishReason | None


def commit(
    draft_ids: Sequence[int], decision: Decision, num_generated: int, limits: Limits
) -> Committed:
    """Cuts the decided tokens at the first stop id or at the length cap, whichever comes first.

    A stop id on the last token allowed is a stop.

    Args:
        draft_ids: The row's proposals.
        decision: What became of them.
        num_generated: Tokens the request had generated before this decision.
        limits: Where the request ends.

    Raises:
        ValueError: the request had ended already.
    """
    num_left = limits.max_tokens - num_generated
    if num_left < 1:
        raise ValueError(f"{num_generated} of {limits.max_tokens} tokens are generated already")
    decided = (*draft_ids[: decision.num_accepted], decision.next_id)
    token_ids = decided[:num_left]
    finish_reason = FinishReason.LENGTH if len(token_ids) == num_left else None
    for place, token_id in enumerate(token_ids):
        if token_id in limits.stop_ids:
            token_ids = token_ids[: place + 1]
            finish_reason = FinishReason.STOP
            break
    num_accepted = min(decision.num_accepted, len(token_ids))
    return Committed(token_ids, num_accepted, finish_reason)


def cut_verdict(verdict: Verdict, num_kept: int) -> Verdict:
    """The verdict of a request that text ended: a stop string inside its `num_kept`-th token.

    Usage and statistics then follow the text, like the tokens.

    Raises:
        ValueError: `num_kept` is not among the verdict's tokens.
    """
    if not 1 <= num_kept <= len(verdict.token_ids):
        raise ValueError(f"num_kept {num_kept} is not in 1..{len(verdict.token_ids)}")
    return replace(
        verdict,
        token_ids=verdict.token_ids[:num_kept],
        num_accepted=min(verdict.num_accepted, num_kept),
        finish_reason=FinishReason.STOP,
    )
