"""Renders a checkpoint's chat template, which is code from a stranger: sandboxed, with a whitelist.

The names and options are those that templates on the hub are written for (documented by
transformers as "chat templates"): trim_blocks, lstrip_blocks, loop controls, the `generation` tag,
`raise_exception`, `strftime_now`, and a `tojson` that does not escape HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dcoco_core.errors import CheckpointError, RequestError


class GenerationBlock(Extension):
    """`{% generation %}` marks what a model was trained on; for rendering it is its body."""

    tags = {"generation"}  # noqa: RUF012  the base class declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Keeps the body, drops the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One compiled template and the special tokens it may print."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template: Template = environment.from_string(source)
        except TemplateError as error:
            raise CheckpointError(f"the chat template does not compile: {error}") from error
        self._special_tokens = dict(special_tokens)
        self.has_thinking_switch = "enable_thinking" in source

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
    ) -> str:
        """The conversation as one text.

        Args:
            messages: the turns.
            add_generation_prompt: whether the model's turn is opened.
            enable_thinking: the switch of templates that have one; None leaves it at the
                template's own default.

        Raises:
            RequestError: the template refuses the messages; field "messages".
        """
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                **({} if enable_thinking is None else {"enable_thinking": enable_thinking}),
                **self._special_tokens,
            )
        except (TemplateError, TypeError) as error:
            raise RequestError(
                f"the model's chat template refuses these messages: {error}", field="messages"
            ) from error


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)
