"""Replies in one piece and in events: same text, usage and statistics after a cut."""

from __future__ import annotations

from typing import Any

import pytest

from dcoco_core.types import FinishReason, Rule, SamplingParams, Speculation
from tests.unit.deployments.openai_api.scripted import (
    COMPLETIONS,
    MODEL,
    Api,
    chat_body,
    events,
    text_of,
)

ROUNDS = ("The", " answer is", " 42. That", " is all")


async def test_chat_reply_has_openai_shape(api: Api) -> None:
    api.say(*ROUNDS)
    response = await api.chat(temperature=0)
    body = response.json()
    assert response.headers["x-request-id"] == body["id"]
    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["model"]) == ("chat.completion", MODEL)
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(ROUNDS), "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]


async def test_end_of_text_counts_but_is_not_text(api: Api) -> None:
    api.say("Hi there")
    body = (await api.chat()).json()
    num_text_tokens = len(api.ids("Hi there"))
    assert body["choices"][0]["message"]["content"] == "Hi there"
    assert body["usage"]["completion_tokens"] == num_text_tokens + 1
    assert body["usage"]["prompt_tokens"] == len(api.backend.requests[0].prompt_ids)
    assert body["usage"]["total_tokens"] == sum(
        body["usage"][key] for key in ("prompt_tokens", "completion_tokens")
    )


async def test_reply_of_nothing_but_end_of_text(api: Api) -> None:
    api.say("")
    body = (await api.chat()).json()
    assert body["choices"][0]["message"]["content"] == ""
    assert body["usage"]["completion_tokens"] == 1
    chunks = events(await api.chat(stream=True, stream_options={"include_usage": True}))
    assert text_of(chunks) == ""
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, "stop"]
    assert chunks[-1]["usage"]["completion_tokens"] == 1


async def test_metrics_follow_the_verdicts(api: Api) -> None:
    api.say(*ROUNDS)
    metrics = (await api.chat()).json()["metrics"]
    drafted = [len(api.ids(text)) for text in ROUNDS[1:]]
    drafted[-1] += 1  # end of text
    speculative = metrics["speculative_decoding"]
    assert speculative["num_spec_steps"] == 3
    assert speculative["num_draft_tokens"] == 3 * 7
    assert speculative["num_accepted_draft_tokens"] == sum(drafted) - 3
    assert speculative["mean_acceptance_length"] == pytest.approx(sum(drafted) / 3)
    assert metrics["speculation"] == {
        "enabled": True,
        "num_draft_tokens": 7,
        "corrector": "dcoco",
    }
    assert metrics["num_rounds"] == 4
    assert metrics["time_to_first_token_ms"] >= 0
    assert metrics["generation_time_ms"] >= 0


async def test_plain_decoding_has_no_speculation_statistics(api: Api) -> None:
    api.play(api.ids(" one"))
    metrics = (await api.chat(speculation={"enabled": False})).json()["metrics"]
    assert metrics["speculative_decoding"] is None
    assert metrics["speculation"]["enabled"] is False


async def test_length_is_passed_on(api: Api) -> None:
    api.play(api.ids("a b c"), finish_reason=FinishReason.LENGTH)
    assert (await api.chat()).json()["choices"][0]["finish_reason"] == "length"


async def test_one_event_per_round_between_role_and_finish(api: Api) -> None:
    api.say(*ROUNDS)
    response = await api.chat(stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    assert "content-length" not in response.headers
    chunks = events(response)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [
        {"role": "assistant", "content": ""},
        *({"content": text} for text in ROUNDS),
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 5 + ["stop"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": None}, {"include_usage": False}])
async def test_no_usage_unless_asked_for(api: Api, options: dict[str, Any] | None) -> None:
    api.say(*ROUNDS)
    chunks = events(await api.chat(stream=True, stream_options=options))
    assert all("usage" not in chunk for chunk in chunks)
    assert all(chunk["choices"] for chunk in chunks)
    assert [index for index, chunk in enumerate(chunks) if "metrics" in chunk] == [len(chunks) - 1]


async def test_usage_chunk_is_last_and_has_no_choice(api: Api) -> None:
    api.say(*ROUNDS)
    whole = (await api.chat()).json()
    chunks = events(await api.chat(stream=True, stream_options={"include_usage": True}))
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert all("metrics" not in chunk for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-1]["metrics"]["speculative_decoding"] == whole["metrics"]["speculative_decoding"]


async def test_continuous_usage_counts_the_tokens_of_every_chunk(api: Api) -> None:
    api.say(*ROUNDS)
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(await api.chat(stream=True, stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks if text_of([chunk])]
    lengths = [len(api.ids(text)) for text in ROUNDS]
    assert counts == [
        *(sum(lengths[: index + 1]) for index in range(3)),
        sum(lengths) + 1,
    ]


async def test_completion_endpoint_streams_and_replies(api: Api) -> None:
    api.say(*ROUNDS)
    params = {"model": MODEL, "prompt": "Once upon"}
    whole = (await api.post(COMPLETIONS, params)).json()
    assert whole["id"].startswith("cmpl-")
    assert whole["object"] == "text_completion"
    assert whole["choices"] == [
        {"index": 0, "text": "".join(ROUNDS), "logprobs": None, "finish_reason": "stop"}
    ]
    chunks = events(await api.post(COMPLETIONS, {**params, "stream": True}))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == [*ROUNDS, ""]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


@pytest.mark.parametrize("stop", ["END.", ["zzz", "END."]])
async def test_stop_string_over_two_rounds(api: Api, stop: str | list[str]) -> None:
    api.play(api.ids("a"), api.ids(" b EN"), api.ids("D. and more"), api.ids(" never"))
    whole = (await api.chat(stop=stop)).json()
    assert whole["choices"][0]["message"]["content"] == "a b "
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert api.backend.num_rounds == 3  # the rest was cancelled
    assert api.backend.num_open == 0
    chunks = events(await api.chat(stop=stop, stream=True))
    assert text_of(chunks) == "a b "


async def test_usage_and_statistics_follow_a_stop_string(api: Api) -> None:
    first, second = api.ids("a"), api.ids(" b END. and more")
    api.play(first, second, api.ids(" never"))
    body = (await api.chat(stop="END.")).json()
    num_kept = next(
        count for count in range(len(second)) if "END." in api.tokenizer.raw.decode(second[:count])
    )
    assert 0 < num_kept < len(second) - 1
    assert body["usage"]["completion_tokens"] == len(first) + num_kept
    speculative = body["metrics"]["speculative_decoding"]
    assert speculative["num_spec_steps"] == 1
    assert speculative["num_accepted_draft_tokens"] == num_kept
    assert speculative["mean_acceptance_length"] == num_kept


async def test_stop_string_wins_over_length_at_the_same_token(api: Api) -> None:
    api.play(api.ids("a stop"), finish_reason=FinishReason.LENGTH)
    body = (await api.chat(stop=" stop")).json()
    assert body["choices"][0] | {"message": None} == {
        "index": 0,
        "message": None,
        "logprobs": None,
        "finish_reason": "stop",
    }


async def test_text_that_only_began_like_a_stop_string_is_flushed(api: Api) -> None:
    api.say("a", " b EN")
    assert text_of(events(await api.chat(stop="END.", stream=True))) == "a b EN"


@pytest.mark.parametrize("text", ["I like 🦜🏽 and 日本語 très", "👩‍👩‍👧‍👦", "é"])
async def test_split_characters_are_never_shown(api: Api, text: str) -> None:
    api.play(*([token_id] for token_id in api.ids(text)))
    whole = (await api.chat()).json()["choices"][0]["message"]["content"]
    chunks = events(await api.chat(stream=True))
    assert whole == text_of(chunks) == text
    assert all("\ufffd" not in text_of([chunk]) for chunk in chunks)


async def test_a_character_cut_off_by_length_is_flushed(api: Api) -> None:
    api.play(api.ids("ok"), api.ids("🦜")[:-1], finish_reason=FinishReason.LENGTH)
    whole = (await api.chat()).json()["choices"][0]["message"]["content"]
    assert whole == "ok\ufffd"
    assert text_of(events(await api.chat(stream=True))) == whole


async def test_request_that_reaches_the_backend(api: Api) -> None:
    api.say("x")
    await api.chat(
        temperature=0.5,
        top_p=0.9,
        top_k=50,
        seed=-3,
        max_completion_tokens=9,
        speculation={"num_draft_tokens": 4, "corrector": "none"},
    )
    request = api.backend.requests[0]
    assert request.sampling == SamplingParams(0.5, 50, 0.9, -3, -3)
    assert request.limits.max_tokens == 9
    assert request.limits.stop_ids == api.tokenizer.eos_token_ids
    assert request.speculation == Speculation(4, "none")


async def test_defaults(api: Api) -> None:
    api.say("x")
    await api.chat(ignore_eos=True, top_k=-1, user="someone", stop=None, seed=None)
    await api.chat()
    first, second = api.backend.requests
    assert first.limits.max_tokens == 256 - len(first.prompt_ids)  # fills the context
    assert first.limits.stop_ids == frozenset()
    assert first.sampling.temperature == 1.0  # OpenAI's
    assert first.sampling.top_k == 0
    assert first.sampling.rule is Rule.REJECTION
    assert first.sampling.noise_key != second.sampling.noise_key
    assert first.speculation == Speculation(7, "dcoco")
    assert first.request_id != second.request_id


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"enabled": True}, Speculation(7, "dcoco")),
        ({"enabled": False}, Speculation(0, "dcoco")),
        ({"num_draft_tokens": 0}, Speculation(0, "dcoco")),
        ({"num_draft_tokens": 15, "enabled": True}, Speculation(15, "dcoco")),
        ({"corrector": "none"}, Speculation(7, "none")),
        ({}, Speculation(7, "dcoco")),
    ],
)
async def test_speculation_options(
    api: Api, options: dict[str, Any], expected: Speculation
) -> None:
    api.say("x")
    assert (await api.chat(speculation=options)).status_code == 200
    assert api.backend.requests[0].speculation == expected


async def test_max_tokens_is_cut_to_the_room_left(api: Api) -> None:
    api.say("x")
    body = {"model": MODEL, "prompt": [5] * 255, "max_tokens": 64}
    assert (await api.post(COMPLETIONS, body)).status_code == 200
    assert api.backend.requests[0].limits.max_tokens == 1


@pytest.mark.parametrize("prompt", ["Once upon", ["Once upon"], "ids", "nested ids"])
async def test_prompt_forms(api: Api, prompt: Any) -> None:
    api.say("x")
    ids = api.ids("Once upon")
    prompt = {"ids": ids, "nested ids": [ids]}.get(str(prompt), prompt)
    await api.post(COMPLETIONS, {"model": MODEL, "prompt": prompt})
    assert api.backend.requests[0].prompt_ids == tuple(ids)


async def test_a_message_repeated_as_it_was_received_is_accepted(api: Api) -> None:
    api.say("x")
    echoed: dict[str, Any] = {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }
    messages = [*chat_body()["messages"], echoed, {"role": "user", "content": "Again"}]
    assert (await api.chat(messages=messages)).status_code == 200
