"""Answers both completion endpoints: a reply in one piece, or a stream with one event per round."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import uuid4

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from deployments.openai_api.backend import Backend, ModelFacts
from deployments.openai_api.errors import as_api_error
from deployments.openai_api.generation import Generation
from deployments.openai_api.prompts import Prompt, Prompts
from deployments.openai_api.responses import Choice, Json, Reply
from deployments.openai_api.schemas import GenerationRequest, StreamOptions
from deployments.openai_api.settings import HttpSettings
from deployments.openai_api.sse import DONE, EventStream, event, unless_gone
from deployments.openai_api.tokenizer import ApiTokenizer
from deployments.openai_api.translate import to_request


class Completions:
    """Runs checked requests through the backend."""

    def __init__(
        self, backend: Backend, facts: ModelFacts, tokenizer: ApiTokenizer, settings: HttpSettings
    ) -> None:
        self.prompts = Prompts(tokenizer)
        self._backend = backend
        self._facts = facts
        self._tokenizer = tokenizer
        self._settings = settings

    async def respond(
        self, request: HttpRequest, params: GenerationRequest, prompt: Prompt, choice: Choice
    ) -> Response:
        """The reply. Raises what as_api_error understands, as long as nothing has been sent."""
        request_id = f"{choice.id_prefix}-{uuid4().hex}"
        core = to_request(params, prompt, self._facts, self._tokenizer.eos_token_ids, request_id)
        generation = Generation(core, self._backend, self._tokenizer.raw, params.stop)
        reply = Reply(generation, choice, self._facts, int(time.time()))
        headers = {"X-Request-Id": request_id}
        if not params.stream:
            body = await unless_gone(request, self._whole(reply))
            return JSONResponse(body, headers=headers)
        chunks = self._chunks(reply, params.stream_options or StreamOptions())
        # Until the first round is in, a refusal still gets its own status.
        first = await unless_gone(request, anext(chunks))
        return EventStream(first, chunks, headers)

    async def _whole(self, reply: Reply) -> Json:
        texts: list[str] = []
        async with aclosing(reply.generation.deltas(self._settings.request_timeout_s)) as deltas:
            async for delta in deltas:
                texts.append(delta.text)
        return reply.whole("".join(texts))

    async def _chunks(self, reply: Reply, options: StreamOptions) -> AsyncGenerator[bytes, None]:
        """The events of a stream; what is certain at the same time travels together.

        An error before the first chunk is raised, a later one becomes the last event.
        """
        is_started = False
        try:
            async with aclosing(
                reply.generation.deltas(self._settings.request_timeout_s)
            ) as deltas:
                async for delta in deltas:
                    events = [] if is_started else reply.openings()
                    if delta.text:
                        events.append(reply.piece(delta.text))
                    if delta.verdict.finish_reason is not None:
                        events.append(reply.finish())
                    if events:
                        yield b"".join(event(_with_usage(data, reply, options)) for data in events)
                        is_started = True
        except Exception as error:
            if not is_started:
                raise
            yield event(as_api_error(error, retry_after_s=self._settings.retry_after_s).body())
            return
        yield (event(reply.totals()) if options.include_usage else b"") + DONE


def _with_usage(data: Json, reply: Reply, options: StreamOptions) -> Json:
    """Usage so far on every chunk if asked for; null if only the last chunk is to have it."""
    if options.continuous_usage_stats:
        data["usage"] = reply.usage()
    elif options.include_usage:
        data["usage"] = None
    is_last = bool(data["choices"][0]["finish_reason"])
    if is_last and not options.include_usage:
        data["metrics"] = reply.metrics()
    return data
