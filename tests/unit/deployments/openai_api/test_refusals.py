"""Everything that must be refused: status, parameter and a message that helps."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from dcoco_core.errors import CapacityError, RequestError
from deployments.openai_api.backend import BackendUnavailableError, Health, ModelFacts
from deployments.openai_api.settings import HttpSettings
from tests.unit.deployments.openai_api.scripted import CHAT, COMPLETIONS, MODEL, Api, chat_body


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


NAN, INFINITY = float("nan"), float("inf")
BAD_PARAMS: list[tuple[dict[str, Any], str | None, str]] = [
    ({"temperature": -1}, "temperature", "greater than or equal to 0"),
    ({"temperature": 2.5}, "temperature", "less than or equal to 2"),
    ({"temperature": NAN}, "temperature", "finite"),
    ({"temperature": INFINITY}, "temperature", ""),
    ({"temperature": "0.5"}, "temperature", "valid number"),
    ({"temperature": True}, "temperature", "valid number"),
    ({"top_p": 0}, "top_p", "greater than 0"),
    ({"top_p": 1.1}, "top_p", "less than or equal to 1"),
    ({"top_p": NAN}, "top_p", "finite"),
    ({"top_k": -2}, "top_k", "greater than or equal to -1"),
    ({"top_k": 1.5}, "top_k", "valid integer"),
    ({"seed": 2**63}, "seed", ""),
    ({"seed": "1"}, "seed", "valid integer"),
    ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
    ({"max_tokens": -1}, "max_tokens", "greater than or equal to 1"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "greater than or equal to 1"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, None, "max_completion_tokens (6) disagree"),
    ({"stop": ["a"] * 5}, "stop", "at most 4"),
    ({"stop": ""}, "stop", "1 to 1000 characters"),
    ({"stop": "a" * 1001}, "stop", "1 to 1000 characters"),
    ({"stop": [1]}, "stop", "list of strings"),
    ({"ignore_eos": 1}, "ignore_eos", "valid boolean"),
    ({"user": 7}, "user", "valid string"),
    ({"stream": "yes"}, "stream", "valid boolean"),
    ({"stream_options": {"include_usage": True}}, None, "stream: true"),
    (
        {"stream": True, "stream_options": {"include_usages": True}},
        "stream_options.include_usages",
        "'include_usage'",
    ),
    ({"speculation": {"corector": "none"}}, "speculation.corector", "'corrector'"),
    ({"speculation": {"corrector": "dcoc"}}, "speculation.corrector", "Did you mean 'dcoco'"),
    ({"speculation": {"num_draft_tokens": 16}}, "speculation.num_draft_tokens", "0 to 15"),
    ({"speculation": {"num_draft_tokens": -1}}, "speculation.num_draft_tokens", "equal to 0"),
    (
        {"speculation": {"enabled": False, "num_draft_tokens": 4}},
        "speculation.num_draft_tokens",
        "disagree",
    ),
    ({"temperatur": 1}, "temperatur", "Did you mean 'temperature'"),
    ({"max_token": 1}, "max_token", "Did you mean 'max_tokens'"),
    ({"presence_penaltys": 1}, "presence_penaltys", "Did you mean 'presence_penalty'"),
    ({"model": None}, "model", "valid string"),
    ({"messages": []}, "messages", "at least 1"),
    ({"messages": "hi"}, "messages", "valid list"),
    ({"messages": ["hi"]}, "messages[0]", ""),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "'user'"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "required"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "required"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "string"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "string"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "non-empty"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "txt": "x"}]}]},
        "messages[0].content",
        "nothing else",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content",
        "text only",
    ),
    ({"messages": [{"role": "user", "contents": "x"}]}, "messages[0].content", "required"),
    (
        {"messages": [{"role": "user", "content": "x", "contents": "x"}]},
        "messages[0].contents",
        "Did you mean 'content'",
    ),
    (
        {"messages": [{"role": "user", "content": "x", "name": "Ann"}]},
        "messages[0].name",
        "not supported",
    ),
    ({"messages": [{"role": "user", "content": "word " * 400}]}, "messages", "256 tokens"),
]


@pytest.mark.parametrize(("params", "param", "hint"), BAD_PARAMS, ids=lambda value: str(value)[:40])
async def test_bad_parameter(api: Api, params: Any, param: str | None, hint: str) -> None:
    # json spells NaN and Infinity, as Python clients do.
    body = json.dumps(chat_body(**params))
    headers = {"Content-Type": "application/json"}
    error = error_of(await api.request("POST", CHAT, content=body, headers=headers), 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert hint in error["message"]
    assert api.backend.requests == []


NOT_NEUTRAL: list[tuple[str, Any, list[Any]]] = [
    ("n", 2, [1, None]),
    ("presence_penalty", 0.5, [0, 0.0, None]),
    ("frequency_penalty", -2, [0]),
    ("repetition_penalty", 1.1, [1, 1.0]),
    ("logit_bias", {"5": -100}, [{}, None]),
    ("logprobs", True, [False, None]),
    ("top_logprobs", 2, [0]),
    ("response_format", {"type": "json_object"}, [{"type": "text"}]),
    ("tools", [{"type": "function", "function": {"name": "f"}}], [[], None]),
    ("tool_choice", "required", ["none", "auto"]),
    ("functions", [{"name": "f"}], [[]]),
    ("min_p", 0.1, [0]),
    ("modalities", ["audio"], [["text"]]),
    ("reasoning_effort", "high", [None]),
    ("n", True, []),
    ("presence_penalty", NAN, []),
]


@pytest.mark.parametrize(("name", "value", "neutral"), NOT_NEUTRAL)
async def test_unsupported_parameters_pass_only_while_neutral(
    api: Api, name: str, value: Any, neutral: list[Any]
) -> None:
    headers = {"Content-Type": "application/json"}
    body = json.dumps(chat_body(**{name: value}))
    error = error_of(await api.request("POST", CHAT, content=body, headers=headers), 400)
    assert error["param"] == name
    assert "not supported" in error["message"]
    api.say("x")
    for allowed in neutral:
        assert (await api.chat(**{name: allowed})).status_code == 200


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [49152]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [5] * 256}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({}, "prompt"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "logprobs": 0}, "logprobs"),
        ({"prompt": "a", "messages": []}, "messages"),
    ],
)
async def test_bad_completion(api: Api, params: dict[str, Any], param: str) -> None:
    error = error_of(await api.post(COMPLETIONS, {"model": MODEL, **params}), 400)
    assert error["param"] == param


async def test_too_long_prompt_is_told_the_numbers(api: Api) -> None:
    response = await api.post(COMPLETIONS, {"model": MODEL, "prompt": [5] * 300})
    error = error_of(response, 400)
    assert error["code"] == "context_length_exceeded"
    assert "300 tokens" in error["message"]
    assert "256 tokens" in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"model": "smollm2",}',
        b"[1]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"seed": ' + b"1" * 5000 + b"}",
        b'{"model": "\\ud800"}',
    ],
    ids=["empty", "cut", "comma", "list", "not utf-8", "deep", "long number", "lone surrogate"],
)
async def test_invalid_json(api: Api, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    error = error_of(await api.request("POST", CHAT, content=body, headers=headers), 400)
    assert error["code"] == "invalid_json"


async def test_wrong_model(api: Api) -> None:
    error = error_of(await api.chat(model="gpt-4"), 404)
    assert error["code"] == "model_not_found"
    assert error["param"] == "model"
    assert MODEL in error["message"]


async def test_wrong_path_method_and_media_type(api: Api) -> None:
    assert "/v1/nothing" in error_of(await api.request("GET", "/v1/nothing"), 404)["message"]
    response = await api.request("GET", CHAT)
    assert error_of(response, 405)["message"]
    assert response.headers["allow"] == "POST"
    assert (
        "application/json"
        in error_of(await api.request("POST", CHAT, content=json.dumps(chat_body())), 415)[
            "message"
        ]
    )


async def test_oversized_body(api: Api) -> None:
    small = Api(api.backend, api.tokenizer, HttpSettings(max_body_bytes=1000))
    response = await small.chat(user="x" * 2000)
    assert error_of(response, 413)["code"] == "request_too_large"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "param"),
    [
        (CapacityError("all slots are taken"), 429, None),
        (RequestError("the drafter cannot do that", field="temperature"), 400, "temperature"),
        (BackendUnavailableError("The replica was lost."), 503, None),
        (KeyError("a bug"), 500, None),
    ],
)
async def test_backend_errors_before_the_first_token(
    api: Api, stream: bool, error: Exception, status: int, param: str | None
) -> None:
    api.play(error)
    response = await api.chat(stream=stream)
    assert error_of(response, status)["param"] == param
    assert ("retry-after" in response.headers) == (status == 429)
    if status == 500:
        assert "a bug" not in response.text
    api.say("still there")
    assert (await api.chat()).status_code == 200


async def test_a_verdict_out_of_place_is_an_error_not_wrong_text(api: Api) -> None:
    api.say("one", " two")
    api.backend.skipped = 1
    error_of(await api.chat(), 500)


async def test_a_server_without_drafter_says_so(api: Api) -> None:
    plain = Api(api.backend, api.tokenizer, facts=ModelFacts(MODEL, 256))
    plain.say("x")
    assert (await plain.chat(speculation={"enabled": False})).status_code == 200
    error = error_of(await plain.chat(speculation={"enabled": True}), 400)
    assert "no drafter" in error["message"]


async def test_models(api: Api) -> None:
    models = (await api.request("GET", "/v1/models")).json()
    assert [model["id"] for model in models["data"]] == [MODEL]
    assert models["object"] == "list"
    model = (await api.request("GET", f"/v1/models/{MODEL}")).json()
    assert model["max_model_len"] == 256
    error = error_of(await api.request("GET", "/v1/models/owner/other"), 404)
    assert error["code"] == "model_not_found"


async def test_health(api: Api) -> None:
    response = await api.request("GET", "/health")
    assert (response.status_code, response.json()["status"]) == (200, "ready")
    assert set(response.json()["stages"]) == {"verifier", "drafter", "corrector"}
    stages = {"verifier": "ready", "drafter": "unavailable"}
    for is_ready in (False, True):  # even if requests can be answered without drafts
        api.backend.state = Health(is_ready, stages)
        response = await api.request("GET", "/health")
        assert (response.status_code, response.json()["stages"]) == (503, stages)
    api.backend.state = BackendUnavailableError("gone")
    assert (await api.request("GET", "/health")).status_code == 503
