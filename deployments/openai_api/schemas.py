"""The bodies of /v1/chat/completions and /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MAX_STOP_STRINGS = 4
MAX_STOP_CHARS = 1000  # a stop string's length bounds the work per token

MIN_SEED, MAX_SEED = -(2**63), 2**63 - 1  # int64


def _text_of(content: Any) -> Any:
    """A string, or the text parts of a list joined by newlines."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise ValueError("must be a string or a non-empty list of text parts")
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise ValueError('this server takes text only: every part must have "type": "text"')
        if set(part) != {"type", "text"} or not isinstance(part["text"], str):
            raise ValueError('a text part is {"type": "text", "text": "..."} and nothing else')
    return "\n".join(part["text"] for part in content)


def _stop_strings(stop: Any) -> Any:
    """None, one string or a list of strings, as a list."""
    if stop is None:
        return []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(item, str) for item in stops):
        raise ValueError("must be a string or a list of strings")
    if len(stops) > MAX_STOP_STRINGS:
        raise ValueError(f"at most {MAX_STOP_STRINGS} stop strings, got {len(stops)}")
    if not all(0 < len(item) <= MAX_STOP_CHARS for item in stops):
        raise ValueError(f"a stop string has 1 to {MAX_STOP_CHARS} characters")
    return stops


def _one_prompt(prompt: Any) -> Any:
    """A string, a list of one string, token ids, or a list of one list of token ids."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and any(isinstance(item, str | list) for item in prompt):
        raise ValueError("one prompt per request: send several requests")
    if not isinstance(prompt, list) or not all(type(item) is int for item in prompt):
        raise ValueError("must be a string, a list of one string, or a list of token ids")
    return prompt


class Schema(BaseModel):
    """Strict: no coercion between types, no unknown names, no NaN."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class Message(Schema):
    """One chat message. `developer` is OpenAI's newer word for `system`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_text_of)]


class StreamOptions(Schema):
    """`continuous_usage_stats` (vLLM's name) puts the usage so far on every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Literal[False] | None = None


class SpeculationOptions(Schema):
    """How to draft. Changes the speed; the text only by the rules in docs/lossless.md."""

    enabled: bool | None = None
    num_draft_tokens: int | None = Field(default=None, ge=0)
    corrector: str | None = None


class GenerationRequest(Schema):
    """What both endpoints share."""

    model: str
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    seed: int | None = Field(default=None, ge=MIN_SEED, le=MAX_SEED)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: Annotated[list[str], BeforeValidator(_stop_strings)] = Field(default_factory=list)
    ignore_eos: bool | None = None
    user: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    speculation: SpeculationOptions | None = None

    @model_validator(mode="after")
    def _consistent(self) -> GenerationRequest:
        both = (self.max_tokens, self.max_completion_tokens)
        if None not in both and both[0] != both[1]:
            raise ValueError(
                f"max_tokens ({both[0]}) and max_completion_tokens ({both[1]}) disagree: send one"
            )
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed with stream: true")
        return self

    @property
    def token_limit(self) -> int | None:
        """max_tokens under either name; None fills the context."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class ChatRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)


class CompletionRequest(GenerationRequest):
    """POST /v1/completions: one prompt, as text or token ids."""

    prompt: Annotated[str | list[int], BeforeValidator(_one_prompt)]
