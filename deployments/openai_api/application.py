"""The HTTP application: routes, errors in OpenAI's shape, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import time
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from dcoco_core.errors import DcocoError
from deployments.openai_api.backend import Backend, Health, ModelFacts
from deployments.openai_api.body import read_json_body
from deployments.openai_api.completions import Completions
from deployments.openai_api.errors import ApiError, DeadlineError, as_api_error
from deployments.openai_api.parsing import parse_chat, parse_completion
from deployments.openai_api.responses import ChatChoice, CompletionChoice
from deployments.openai_api.schemas import ChatRequest, CompletionRequest
from deployments.openai_api.settings import HttpSettings
from deployments.openai_api.sse import ClientGoneError
from deployments.openai_api.tokenizer import ApiTokenizer
from deployments.openai_api.translate import check_model

logger = logging.getLogger("ray.serve")

HEALTH_TIMEOUT_S = 3.0
CLIENT_CLOSED_REQUEST = 499  # nginx's number; nobody is left to read it


def create_app(
    backend: Backend, facts: ModelFacts, tokenizer: ApiTokenizer, settings: HttpSettings
) -> FastAPI:
    """The application for one served model."""
    app = FastAPI(title="DCOCO", summary="Lossless speculative decoding behind an OpenAI API")
    completions = Completions(backend, facts, tokenizer, settings)
    model = {
        "id": facts.served_name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "dcoco",
        "max_model_len": facts.max_model_len,
    }

    @app.post("/v1/chat/completions", openapi_extra=_body_of(ChatRequest))
    async def chat(request: HttpRequest) -> Response:
        params = parse_chat(await read_json_body(request, settings.max_body_bytes))
        check_model(params.model, facts)
        prompt = completions.prompts.chat(params.messages)
        return await completions.respond(request, params, prompt, ChatChoice())

    @app.post("/v1/completions", openapi_extra=_body_of(CompletionRequest))
    async def complete(request: HttpRequest) -> Response:
        params = parse_completion(await read_json_body(request, settings.max_body_bytes))
        check_model(params.model, facts)
        prompt = completions.prompts.completion(params.prompt)
        return await completions.respond(request, params, prompt, CompletionChoice())

    @app.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [model]}

    @app.get("/v1/models/{name:path}")
    async def get_model(name: str) -> dict[str, Any]:
        check_model(name, facts)
        return model

    @app.get("/health")
    async def health() -> JSONResponse:
        state = await _health(backend)
        # Stricter than "answers requests": a lost drafter costs speed only, and shows here.
        is_ready = state.is_ready and set(state.stages.values()) <= {"ready"}
        status = "ready" if is_ready else "unavailable"
        body: dict[str, Any] = {"status": status, "stages": dict(state.stages)}
        if state.cpu:
            body["cpu"] = dict(state.cpu)
        if facts.emulation is not None:
            body |= facts.emulation.as_json() | {"device": dict(state.device)}
        return JSONResponse(body, status_code=200 if is_ready else 503)

    _add_error_handlers(app, settings)
    return app


def _body_of(schema: type[ChatRequest | CompletionRequest]) -> dict[str, Any]:
    """What /docs shows: the handlers read the body themselves, for errors in OpenAI's shape."""
    content = {"application/json": {"schema": schema.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


async def _health(backend: Backend) -> Health:
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_S):
            return await backend.health()
    except Exception as error:  # whatever failed, the answer is that the server is not ready
        logger.debug("the verifier does not tell its health: %r", error)
        return Health(False, {"verifier": "unavailable"})


def _add_error_handlers(app: FastAPI, settings: HttpSettings) -> None:
    def respond(error: ApiError) -> JSONResponse:
        return JSONResponse(error.body(), status_code=error.status, headers=error.headers)

    async def on_http_error(request: HttpRequest, error: Exception) -> Response:
        """Unknown paths and methods, raised by the routing."""
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase
        refusal = ApiError(
            error.status_code,
            f"{phrase}: {request.method} {request.url.path}.",
            code=phrase.lower().replace(" ", "_"),
        )
        refusal.headers.update(error.headers or {})
        return respond(refusal)

    async def on_gone(_request: HttpRequest, _error: Exception) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    async def on_error(_request: HttpRequest, error: Exception) -> Response:
        return respond(as_api_error(error, retry_after_s=settings.retry_after_s))

    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(ClientGoneError, on_gone)
    for kind in (ApiError, DcocoError, DeadlineError, Exception):
        app.add_exception_handler(kind, on_error)
