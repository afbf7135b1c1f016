"""The JSON of replies and stream chunks, for both endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from deployments.openai_api.backend import ModelFacts
from deployments.openai_api.generation import Generation

Json = dict[str, Any]


class Choice(Protocol):
    """How one endpoint words its single choice."""

    @property
    def id_prefix(self) -> str:
        """What reply ids begin with."""
        ...

    @property
    def reply_object(self) -> str:
        """`object` of a whole reply."""
        ...

    @property
    def chunk_object(self) -> str:
        """`object` of a stream chunk."""
        ...

    def whole(self, text: str) -> Json:
        """The choice's content in a whole reply."""
        ...

    def piece(self, text: str) -> Json:
        """The choice's content in a chunk; "" where nothing is added."""
        ...

    def openings(self) -> list[Json]:
        """The content of the chunks before all text."""
        ...


class ChatChoice:
    """Messages and deltas."""

    id_prefix = "chatcmpl"
    reply_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def whole(self, text: str) -> Json:
        """The assistant's message."""
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def piece(self, text: str) -> Json:
        """A delta."""
        return {"delta": {"content": text} if text else {}}

    def openings(self) -> list[Json]:
        """The role comes first."""
        return [{"delta": {"role": "assistant", "content": ""}}]


class CompletionChoice:
    """Plain text."""

    id_prefix = "cmpl"
    reply_object = "text_completion"
    chunk_object = "text_completion"

    def whole(self, text: str) -> Json:
        """The text."""
        return {"text": text}

    def piece(self, text: str) -> Json:
        """The next piece of the text."""
        return {"text": text}

    def openings(self) -> list[Json]:
        """Nothing comes before the text."""
        return []


@dataclass(frozen=True, slots=True)
class Reply:
    """What all objects of one reply share."""

    generation: Generation
    choice: Choice
    facts: ModelFacts
    created: int  # seconds since the epoch

    def whole(self, text: str) -> Json:
        """The reply in one piece."""
        return {
            **self._envelope(self.choice.reply_object),
            "choices": [self._choice(self.choice.whole(text), is_last=True)],
            "usage": self.usage(),
            "metrics": self.metrics(),
        }

    def openings(self) -> list[Json]:
        """The chunks before the first text."""
        return [self._chunk([self._choice(content)]) for content in self.choice.openings()]

    def piece(self, text: str) -> Json:
        """A chunk of text."""
        return self._chunk([self._choice(self.choice.piece(text))])

    def finish(self) -> Json:
        """The chunk with the finish reason."""
        return self._chunk([self._choice(self.choice.piece(""), is_last=True)])

    def totals(self) -> Json:
        """The last chunk of a stream with include_usage: no choice, usage and statistics."""
        return {**self._chunk([]), "usage": self.usage(), "metrics": self.metrics()}

    def usage(self) -> Json:
        """Tokens so far."""
        num_prompt = len(self.generation.request.prompt_ids)
        num_generated = self.generation.num_tokens
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_generated,
            "total_tokens": num_prompt + num_generated,
        }

    def metrics(self) -> Json:
        """Statistics and the speculation used; vLLM's keys where vLLM has them.

        Times count from the request's arrival, waiting included. `speculative_decoding` is null
        when no round had a draft.
        """
        generation = self.generation
        speculation = generation.request.speculation
        emulation = self.facts.emulation
        first_token_s = generation.first_token_s or 0.0
        return {
            "speculative_decoding": generation.record.summary(),
            "speculation": {
                "enabled": speculation.num_draft_tokens > 0,
                "num_draft_tokens": speculation.num_draft_tokens,
                "corrector": speculation.corrector,
                **({} if emulation is None else emulation.as_json()),
            },
            "num_rounds": generation.num_rounds,
            "time_to_first_token_ms": round(1e3 * first_token_s, 3),
            "generation_time_ms": round(1e3 * (generation.elapsed_s - first_token_s), 3),
        }

    def _envelope(self, kind: str) -> Json:
        return {
            "id": self.generation.request.request_id,
            "object": kind,
            "created": self.created,
            "model": self.facts.served_name,
        }

    def _chunk(self, choices: list[Json]) -> Json:
        return {**self._envelope(self.choice.chunk_object), "choices": choices}

    def _choice(self, content: Json, *, is_last: bool = False) -> Json:
        reason = self.generation.finish_reason if is_last else None
        return {"index": 0, **content, "logprobs": None, "finish_reason": reason}
