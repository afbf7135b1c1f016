"""A corrector's sizes and choices: a frozen dataclass, read from JSON or from the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from dcoco_core.errors import ConfigError
from dcoco_core.registry import shorten, unknown_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    ConfigT = TypeVar("ConfigT", bound=DataclassInstance)
else:
    ConfigT = TypeVar("ConfigT")


def from_values(config_type: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    """A `config_type` of these values, as a JSON file gives them; absent ones take the default.

    Raises:
        ConfigError: an unknown name, a missing one without default, or a value that is not of its
            field's type: int (positive), float (positive), bool, or one of a Literal's.
    """
    hints = get_type_hints(config_type)
    for name, value in values.items():
        if name not in hints:
            raise ConfigError(unknown_name("option", name, hints))
        _require(name, value, hints[name])
    missing = [f.name for f in fields(config_type) if f.default is MISSING and f.name not in values]
    if missing:
        raise ConfigError(f"missing options {', '.join(sorted(missing))}")
    return config_type(**values)


def with_design(
    config_type: type[ConfigT], fixed: Mapping[str, Any], design: Mapping[str, str]
) -> ConfigT:
    """A `config_type` with values `fixed` by the run, and others chosen by `design` as text.

    Raises:
        ConfigError: as from_values, or a choice of what the run has fixed.
    """
    hints = get_type_hints(config_type)
    for name in design:
        if name in fixed:
            raise ConfigError(f"design: {name} follows from the run and cannot be chosen")
    chosen = {
        name: _read(text, hints[name]) if name in hints else text for name, text in design.items()
    }
    try:
        return from_values(config_type, {**fixed, **chosen})
    except ConfigError as error:
        raise ConfigError(f"design: {error}") from None


def parse_design(choices: Iterable[str]) -> dict[str, str]:
    """`field=value` texts by field.

    Raises:
        ConfigError: a text without `=`, or a field chosen twice.
    """
    design: dict[str, str] = {}
    for choice in choices:
        name, separator, value = choice.partition("=")
        if not separator or not name or name in design:
            raise ConfigError(f"design: choose each field once as field=value, got {choice!r}")
        design[name] = value
    return design


def _require(name: str, value: object, expected: Any) -> None:
    if get_origin(expected) is Literal:
        if value not in get_args(expected):
            raise ConfigError(unknown_name(name, str(value), get_args(expected)))
    elif expected is bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, got {value!r}")
    elif expected is float:
        if type(value) not in (int, float) or not 0 < value < float("inf"):  # type: ignore[operator]
            raise ConfigError(f"{name} must be a positive number, got {value!r}")
    elif type(value) is not int or value < 1:
        raise ConfigError(f"{name} must be a positive int, got {value!r}")


def _read(text: str, expected: Any) -> object:
    """The value that `text` spells; text that spells none is returned, to be refused."""
    if expected is bool:
        return {"true": True, "false": False}.get(text, shorten(text))
    if expected in (int, float):
        try:
            number: object = expected(text)
        except ValueError:
            return shorten(text)
        return number
    return text
