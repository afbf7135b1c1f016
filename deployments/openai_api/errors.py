"""Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import logging

from dcoco_core.errors import CapacityError, RequestError
from deployments.openai_api.backend import BackendUnavailableError

logger = logging.getLogger("ray.serve")  # Serve shows and stores what this logger says

ErrorBody = dict[str, dict[str, str | None]]

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"


class ApiError(Exception):
    """One refusal: an HTTP status, what OpenAI's error object says, and extra headers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers: dict[str, str] = {}

    def body(self) -> ErrorBody:
        """The JSON body, and in a stream the in-band error object."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


class DeadlineError(Exception):
    """The request's own deadline passed before it ended."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"The request did not finish within {timeout_s:g} s.")


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400 about one parameter."""
    return ApiError(400, message, param=param, code=code)


def as_api_error(error: Exception, *, retry_after_s: int) -> ApiError:
    """What the client is told about `error`; only an unexpected one is logged and kept vague."""
    match error:
        case ApiError():
            return error
        case RequestError():
            return invalid(_sentence(error), param=error.field)
        case CapacityError():
            busy = ApiError(
                429,
                f"{_sentence(error)} Try again in {retry_after_s} s.",
                kind="rate_limit_error",
                code="server_busy",
            )
            busy.headers["Retry-After"] = str(retry_after_s)
            return busy
        case DeadlineError():
            return ApiError(408, str(error), kind="timeout_error", code="request_timeout")
        case BackendUnavailableError():
            return ApiError(503, _sentence(error), kind=SERVER_ERROR, code="backend_unavailable")
    logger.error("unexpected error while serving a request", exc_info=error)
    return ApiError(
        500, "The server had an error; its log says which.", kind=SERVER_ERROR, code="internal"
    )


def _sentence(error: Exception) -> str:
    """The core's messages are clauses; clients read sentences."""
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
