"""Bounds of the HTTP side."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """What protects the server from its clients.

    Attributes:
        request_timeout_s: longest time from a request's arrival to its end, waiting included.
        retry_after_s: what a 429 tells the client.
        max_body_bytes: larger bodies are refused with a 413.
    """

    request_timeout_s: float = 300.0
    retry_after_s: int = 1
    max_body_bytes: int = 4 * 2**20
