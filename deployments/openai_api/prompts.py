"""Prompts to token ids. A message's text never becomes a control token.

In a chat the template writes the control tokens; a user who types `<|im_end|>` gets it as plain
text. A raw completion prompt is the caller's own markup: control tokens in it are honoured.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from deployments.openai_api.errors import invalid
from deployments.openai_api.schemas import Message
from deployments.openai_api.tokenizer import ApiTokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the parameter they came from."""

    token_ids: tuple[int, ...]
    param: str


class Prompts:
    """Turns the prompts of both endpoints into token ids."""

    def __init__(self, tokenizer: ApiTokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.raw.get_added_tokens_decoder().values()
        longest_first = sorted((t.content for t in added if t.special), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        # The same vocabulary, but control tokens in the text are spelled out like any other text.
        self._plain = Tokenizer.from_str(tokenizer.raw.to_str())
        self._plain.encode_special_tokens = True

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """The ids of a chat, generation prompt included. Raises RequestError or ApiError."""
        if self._tokenizer.template is None:
            raise invalid("This model has no chat template: use /v1/completions.", "messages")
        fence = f"\ue000{secrets.token_hex(8)}\ue001"
        rendered = self._tokenizer.template.render(
            [
                {
                    "role": "system" if message.role == "developer" else message.role,
                    # A fence on both sides of everything that only looks like a control token.
                    "content": self._control.sub(
                        lambda match: f"{fence}{match.group()}{fence}", message.content
                    ),
                }
                for message in messages
            ]
        )
        ids: list[int] = []
        for index, part in enumerate(rendered.split(fence)):
            is_fenced = index % 2 == 1
            encoder = self._plain if is_fenced else self._tokenizer.raw
            ids += encoder.encode(part, add_special_tokens=False).ids
        return Prompt(tuple(ids), "messages")

    def completion(self, prompt: str | list[int]) -> Prompt:
        """The ids of a raw prompt. Raises ApiError."""
        if isinstance(prompt, str):
            ids = self._tokenizer.raw.encode(prompt).ids
        else:
            ids, last_id = prompt, self._tokenizer.vocab_size - 1
            for index, token_id in enumerate(ids):
                if not 0 <= token_id <= last_id:
                    message = f"prompt[{index}] must be a token id, 0 to {last_id}, got {token_id}."
                    raise invalid(message, "prompt")
        if not ids:
            raise invalid("prompt must hold at least one token.", "prompt")
        return Prompt(tuple(ids), "prompt")
