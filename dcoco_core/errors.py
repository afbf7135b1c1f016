"""Errors that name what is wrong and what would be right.

DcocoError
├── ConfigError        a configuration file or argument
├── CheckpointError    weights or tokenizer that are missing, damaged or do not fit
├── RequestError       one request's parameters; `field` names the parameter
└── CapacityError      no free slot; the request itself is fine
"""

from __future__ import annotations


class DcocoError(Exception):
    """Base of every error this project raises on purpose."""


class ConfigError(DcocoError):
    """A configuration value or key that cannot be used."""


class CheckpointError(DcocoError):
    """Weights, tokenizer or metadata that are missing, damaged, or do not fit together."""


class RequestError(DcocoError):
    """A request that cannot be served as asked; `field` is the parameter at fault."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class CapacityError(DcocoError):
    """No slot is free for another request."""
