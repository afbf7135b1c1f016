"""Over real sockets: the openai client, hang-ups, deadlines, errors in the middle of a stream."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx
import openai
import pytest
import uvicorn
from openai import AsyncOpenAI

from dcoco_core.errors import CapacityError
from deployments.openai_api.backend import BackendUnavailableError
from deployments.openai_api.settings import HttpSettings
from tests.unit.deployments.openai_api.scripted import CHAT, MODEL, Api, chat_body

MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [
    {"role": "user", "content": "Hello"}
]


@asynccontextmanager
async def served(api: Api) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(api.app, log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


@pytest.fixture
async def url(api: Api) -> AsyncGenerator[str, None]:
    async with served(api) as base_url:
        yield base_url


@pytest.fixture
async def client(url: str) -> AsyncGenerator[AsyncOpenAI, None]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        yield client


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(5):
        await event.wait()


async def test_openai_client_chats(api: Api, client: AsyncOpenAI) -> None:
    api.say("Hello", " 🦜", " you")
    reply = await client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        temperature=0,
        max_tokens=20,
        extra_body={"top_k": 0, "speculation": {"corrector": "dcoco"}},
    )
    assert reply.choices[0].message.content == "Hello 🦜 you"
    assert reply.usage is not None
    assert reply.model_extra is not None
    assert reply.model_extra["metrics"]["speculative_decoding"]["num_spec_steps"] == 2


async def test_openai_client_streams(api: Api, client: AsyncOpenAI) -> None:
    api.say("Hello", " 🦜", " you")
    stream = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == "Hello 🦜 you"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(api.ids("Hello 🦜 you")) + 1


async def test_openai_client_completes_and_lists(api: Api, client: AsyncOpenAI) -> None:
    api.say(" a time")
    reply = await client.completions.create(model=MODEL, prompt="Once upon", max_tokens=8)
    assert reply.choices[0].text == " a time"
    stream = await client.completions.create(model=MODEL, prompt="Once upon", stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == " a time"
    assert [model.id async for model in client.models.list()] == [MODEL]
    assert (await client.models.retrieve(MODEL)).id == MODEL


async def test_openai_client_raises_its_own_errors(api: Api, client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        await client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="other", messages=MESSAGES)
    api.play(CapacityError("Full."))
    with pytest.raises(openai.RateLimitError) as busy:
        await client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert busy.value.response.headers["retry-after"] == "1"


async def test_text_arrives_while_the_request_runs(api: Api, client: AsyncOpenAI) -> None:
    gate = asyncio.Event()
    api.play(api.ids("early"), gate, api.ids(" late"))
    stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    texts = []
    async for chunk in stream:
        if text := chunk.choices[0].delta.content:
            texts.append(text)
            gate.set()  # the second round only runs once the first has been read
    assert texts == ["early", " late"]


async def test_hanging_up_in_a_stream_frees_the_request(api: Api, url: str) -> None:
    api.play(api.ids("early"), asyncio.Event(), api.ids(" never"))
    async with httpx.AsyncClient(base_url=url) as client:
        for _ in range(10):
            async with client.stream("POST", CHAT, json=chat_body(stream=True)) as response:
                await anext(response.aiter_bytes())
                assert api.backend.num_open == 1
            await soon(api.backend.closed)


@pytest.mark.parametrize("stream", [False, True])
async def test_hanging_up_before_the_reply_frees_the_request(
    api: Api, url: str, stream: bool
) -> None:
    api.play(asyncio.Event(), api.ids("never"))
    body = json.dumps(chat_body(stream=stream)).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    del reader
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    await soon(api.backend.opened)
    writer.close()
    await writer.wait_closed()
    await soon(api.backend.closed)


async def test_an_error_in_a_stream_is_its_last_event(api: Api, client: AsyncOpenAI) -> None:
    api.play(api.ids("early"), BackendUnavailableError("The replica was lost."))
    stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    assert (await anext(stream)).choices[0].delta.content == ""
    assert (await anext(stream)).choices[0].delta.content == "early"
    with pytest.raises(openai.APIError, match="replica was lost"):
        await anext(stream)
    assert api.backend.num_open == 0


async def test_a_backend_that_stops_early_is_an_error(api: Api, url: str) -> None:
    api.play(api.ids("early"), finish_reason=None)
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.post(CHAT, json=chat_body())).status_code == 503
        streamed = await client.post(CHAT, json=chat_body(stream=True))
    last = streamed.text.strip().rpartition("data: ")[2]
    assert json.loads(last)["error"]["code"] == "backend_unavailable"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_backends_own_timeout_is_not_our_deadline(api: Api, url: str, stream: bool) -> None:
    api.play(TimeoutError("somewhere below"))
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.post(CHAT, json=chat_body(stream=stream))).status_code == 500


async def test_deadline(api: Api) -> None:
    hurried = Api(api.backend, api.tokenizer, HttpSettings(request_timeout_s=0.2))
    async with served(hurried) as url, httpx.AsyncClient(base_url=url) as client:
        for stream in (False, True):
            hurried.play(asyncio.Event(), hurried.ids("never"))
            response = await client.post(CHAT, json=chat_body(stream=stream))
            assert response.status_code == 408
            assert response.json()["error"]["code"] == "request_timeout"
            assert api.backend.num_open == 0
        hurried.play(hurried.ids("early"), asyncio.Event(), hurried.ids(" never"))
        response = await client.post(CHAT, json=chat_body(stream=True))
        assert response.status_code == 200
        assert "early" in response.text
        last = json.loads(response.text.strip().rpartition("data: ")[2])
        assert "0.2 s" in last["error"]["message"]
        assert api.backend.num_open == 0
