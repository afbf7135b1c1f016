"""What the verifier decided about one row's draft."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """The accepted prefix and the one token after it.

    `next_id` is the recovered token when a draft token was rejected, the bonus token when all
    were accepted. `num_accepted` excludes it.
    """

    num_accepted: int
    next_id: int
