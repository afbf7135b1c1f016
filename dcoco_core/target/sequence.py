"""One open request at the verifier: its tokens, and how much of them each cache holds."""

from __future__ import annotations

from collections.abc import Sequence as Tokens

from dcoco_core.types import Request, RowHeader


class Sequence:
    """Committed tokens (prompt included) and the cursors into them. Mutable, verifier-private.

    Attributes:
        num_cached: positions the target's KV cache and the context rows hold.
        num_context_sent: context rows the drafter has been sent.
        in_flight: its header is out and its draft is awaited.
    """

    def __init__(self, request: Request, slot: int) -> None:
        self.request = request
        self.slot = slot
        self.tokens = list(request.prompt_ids)
        self.num_cached = 0
        self.num_context_sent = 0
        self.in_flight = False

    @property
    def num_generated(self) -> int:
        """Tokens committed after the prompt."""
        return len(self.tokens) - len(self.request.prompt_ids)

    @property
    def is_prefilled(self) -> bool:
        """Whether the first token has been committed, so that an anchor is pending."""
        return self.num_generated > 0

    def awaits(self, header: RowHeader) -> bool:
        """Whether a draft with this header is the one that is out for this sequence."""
        return (
            self.in_flight
            and header.generation == self.request.generation
            and header.start == len(self.tokens) - 1
        )

    def commit(self, token_ids: Tokens[int]) -> None:
        """Appends committed tokens; the last one is the next anchor and not cached."""
        self.tokens.extend(token_ids)
        self.num_cached = len(self.tokens) - 1

    def rewind_context(self, num_rows: int) -> None:
        """The drafter holds only `num_rows` context rows: send from there; its draft is void."""
        self.num_context_sent = min(num_rows, self.num_cached)
        self.in_flight = False

    def next_header(self) -> RowHeader | None:
        """The header of the next round, or None where drafting cannot pay: one token is left."""
        left = self.request.limits.max_tokens - self.num_generated
        num_draft_tokens = min(self.request.speculation.num_draft_tokens, left - 1)
        if num_draft_tokens <= 0:
            return None
        start = len(self.tokens) - 1
        return RowHeader(
            request_id=self.request.request_id,
            generation=self.request.generation,
            start=start,
            anchor_id=self.tokens[-1],
            num_draft_tokens=num_draft_tokens,
            sampling=self.request.sampling,
            corrector=self.request.speculation.corrector,
            context_start=self.num_context_sent,
            num_context_rows=start - self.num_context_sent,
        )
