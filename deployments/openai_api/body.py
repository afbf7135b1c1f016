"""Reads a request's body within a bound."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest

from deployments.openai_api.errors import ApiError


async def read_json_body(request: HttpRequest, max_bytes: int) -> bytes:
    """The body of a JSON request; a 413 or 415 otherwise."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(
            415,
            f"Send the header Content-Type: application/json, got {media_type or 'none'!r}.",
            code="unsupported_media_type",
        )
    chunks: list[bytes] = []
    num_bytes = 0
    async for chunk in request.stream():
        num_bytes += len(chunk)
        if num_bytes > max_bytes:
            raise ApiError(
                413, f"The body is larger than {max_bytes} bytes.", code="request_too_large"
            )
        chunks.append(chunk)
    return b"".join(chunks)
