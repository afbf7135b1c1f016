"""From the bytes of a body to a checked request, or to a 400 that names the parameter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dcoco_core.registry import shorten, unknown_name
from deployments.openai_api.errors import ApiError, invalid
from deployments.openai_api.neutral import (
    CHAT_NEUTRAL,
    COMPLETION_NEUTRAL,
    MESSAGE_NEUTRAL,
    Neutral,
    without_neutral,
)
from deployments.openai_api.schemas import (
    ChatRequest,
    CompletionRequest,
    Message,
    SpeculationOptions,
    StreamOptions,
)

RequestT = TypeVar("RequestT", bound=BaseModel)

_NESTED: Mapping[str, type[BaseModel]] = {
    "messages": Message,
    "stream_options": StreamOptions,
    "speculation": SpeculationOptions,
}


def parse_chat(body: bytes) -> ChatRequest:
    """A chat request; raises ApiError."""
    values = without_neutral(_json_object(body), CHAT_NEUTRAL)
    messages = values.get("messages")
    if isinstance(messages, list):
        values["messages"] = [
            without_neutral(message, MESSAGE_NEUTRAL, f"messages[{index}].")
            if isinstance(message, dict)
            else message
            for index, message in enumerate(messages)
        ]
    return _validated(ChatRequest, values, CHAT_NEUTRAL)


def parse_completion(body: bytes) -> CompletionRequest:
    """A completion request; raises ApiError."""
    values = without_neutral(_json_object(body), COMPLETION_NEUTRAL)
    return _validated(CompletionRequest, values, COMPLETION_NEUTRAL)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        # json lets NaN and Infinity pass: the schema refuses them with the parameter's name.
        values = json.loads(body.decode("utf-8"))
        if b"\\u" in body:  # an escape may spell half of a surrogate pair, which is no character
            json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise invalid(
            "The body holds half of a surrogate pair, which is not a character.",
            code="invalid_json",
        ) from None
    except (ValueError, RecursionError) as error:
        raise invalid(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(values, dict):
        raise invalid("The body must be a JSON object.", code="invalid_json")
    return values


def _validated(schema: type[RequestT], values: dict[str, Any], neutral: Neutral) -> RequestT:
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise _as_api_error(schema, neutral, error) from None


def _as_api_error(schema: type[BaseModel], neutral: Neutral, error: ValidationError) -> ApiError:
    first = error.errors(include_url=False)[0]
    location: tuple[int | str, ...] = first["loc"]
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    param = shorten(param.removeprefix("."))
    match first["type"]:
        case "extra_forbidden":
            *_, name = location
            nested = _NESTED.get(str(location[0])) if len(location) > 1 else None
            allowed = [*(nested or schema).model_fields, *(() if nested else neutral)]
            message = unknown_name("parameter", str(name), allowed)
            return invalid(message[0].upper() + message[1:], param, "unknown_parameter")
        case "missing":
            return invalid(f"{param} is required.", param, "missing_parameter")
        case "value_error":
            reason = str(first["ctx"]["error"])
            return invalid(f"{param}: {reason}." if param else f"{reason}.", param or None)
    shown = _shown(first["input"])
    reason = first["msg"].removeprefix("Input ")
    return invalid(f"{param} {reason[:1].lower()}{reason[1:]}, got {shown}.", param)


def _shown(value: Any) -> str:
    return shorten(json.dumps(value, default=str))
