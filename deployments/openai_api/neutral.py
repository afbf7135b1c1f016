"""OpenAI parameters this server does not implement: accepted while they change nothing.

Silence about a parameter that would have changed the text is worse than a refusal, and refusing
a client that spells out a default helps nobody. `null` is neutral everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deployments.openai_api.errors import invalid

Neutral = Mapping[str, tuple[Any, ...]]

_SHARED: Neutral = {
    "n": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "min_tokens": (0,),
    "logit_bias": ({},),
    "stop_token_ids": ([],),
    "use_beam_search": (False,),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "store": (False,),
    "metadata": ({},),
    "service_tier": ("auto", "default"),
    "safety_identifier": (),
    "prompt_cache_key": (),
}

CHAT_NEUTRAL: Neutral = {
    **_SHARED,
    "logprobs": (False,),
    "top_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
}

COMPLETION_NEUTRAL: Neutral = {
    **_SHARED,
    "logprobs": (),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
}

# What a client sends back when it repeats an assistant message as it was received.
MESSAGE_NEUTRAL: Neutral = {
    "name": (),
    "refusal": (),
    "audio": (),
    "annotations": ([],),
    "tool_calls": ([],),
    "function_call": (),
    "tool_call_id": (),
    "reasoning_content": (),
}


def without_neutral(values: Mapping[str, Any], neutral: Neutral, where: str = "") -> dict[str, Any]:
    """`values` without the parameters of `neutral`; a 400 for one that is not neutral.

    Args:
        values: a JSON object.
        neutral: by parameter, the values (besides null) that change nothing.
        where: prefix of the parameter's name in the error.
    """
    rest: dict[str, Any] = {}
    for name, value in values.items():
        if name not in neutral:
            rest[name] = value
        elif value is not None and not any(_is_same(value, other) for other in neutral[name]):
            allowed = " or ".join(["null", *(json.dumps(other) for other in neutral[name])])
            raise invalid(
                f"{where}{name} is not supported by this server: leave it out or send {allowed}.",
                param=where + name,
                code="unsupported_parameter",
            )
    return rest


def _is_same(value: Any, neutral: Any) -> bool:
    """Equality that tells true from 1."""
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)
