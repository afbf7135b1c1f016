"""Implementations by name; choosing one imports only that one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from dcoco_core.errors import ConfigError

T = TypeVar("T")

_MAX_SHOWN = 60  # characters of a refused value that the error repeats


class Registry(Generic[T]):
    """Maps names to factories. A factory does its imports inside, so listing names is free."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._factories: dict[str, Callable[..., T]] = {}

    def register(self, name: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """Decorator: registers a factory under `name`."""

        def decorate(factory: Callable[..., T]) -> Callable[..., T]:
            if name in self._factories:
                raise ConfigError(f"{self._kind} {name!r} is registered twice")
            self._factories[name] = factory
            return factory

        return decorate

    def __getitem__(self, name: str) -> Callable[..., T]:
        if name not in self._factories:
            raise ConfigError(unknown_name(self._kind, name, self._factories))
        return self._factories[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> str:
    """The message for a name that is not among the allowed ones, with the nearest valid one."""
    names = sorted(allowed)
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return f"unknown {kind} {shorten(name)!r}.{hint} Allowed: {', '.join(names)}."


def shorten(value: str) -> str:
    """The beginning of a refused value, as an error repeats it."""
    return value if len(value) <= _MAX_SHOWN else value[:_MAX_SHOWN] + "..."
