"""One request on its way through the backend: deltas out, and what is known of it at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from tokenizers import Tokenizer

from dcoco_core.metrics import SpeculationRecord
from dcoco_core.types import FinishReason, Request
from deployments.openai_api.backend import Backend, BackendUnavailableError
from deployments.openai_api.errors import DeadlineError
from deployments.streaming import Delta, TextStream


class Generation:
    """Runs a request once. The attributes grow with every delta.

    Attributes:
        num_tokens: generated tokens so far. The end-of-text token counts, and so does the token
            that completed a stop string, though the text ends before both.
        num_rounds: verdicts so far, the prefill's included.
        finish_reason: None until the last delta.
    """

    def __init__(
        self, request: Request, backend: Backend, tokenizer: Tokenizer, stops: Sequence[str]
    ) -> None:
        self.request = request
        self.num_tokens = 0
        self.num_rounds = 0
        self.finish_reason: FinishReason | None = None
        self.record = SpeculationRecord()
        self.first_token_s: float | None = None
        self.elapsed_s = 0.0
        self._backend = backend
        self._text = TextStream(tokenizer, stops)
        self._start = time.monotonic()

    async def deltas(self, timeout_s: float) -> AsyncGenerator[Delta, None]:
        """One delta per round. Closing it, or a stop string, ends the request at the backend.

        Raises:
            DeadlineError: the request did not end within `timeout_s` of its creation.
            BackendUnavailableError: the backend ended the request without a finish reason.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        async with aclosing(self._backend.generate(self.request)) as verdicts:
            while self.finish_reason is None:
                try:
                    async with asyncio.timeout_at(deadline) as timer:
                        verdict = await anext(verdicts, None)
                except TimeoutError:
                    if timer.expired():
                        raise DeadlineError(timeout_s) from None
                    raise
                if verdict is None:
                    raise BackendUnavailableError("the request ended before its text did")
                if verdict.start != len(self.request.prompt_ids) + self.num_tokens:
                    raise RuntimeError(f"verdict out of place after {self.num_tokens}: {verdict}")
                delta = self._text.push(verdict)
                self._count(delta)
                yield delta

    def _count(self, delta: Delta) -> None:
        verdict = delta.verdict
        self.elapsed_s = time.monotonic() - self._start
        if self.first_token_s is None and verdict.token_ids:
            self.first_token_s = self.elapsed_s
        self.num_tokens += len(verdict.token_ids)
        self.num_rounds += 1
        self.record.add(verdict)
        self.finish_reason = verdict.finish_reason
