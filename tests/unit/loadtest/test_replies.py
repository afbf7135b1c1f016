"""What a client makes of replies that end well, badly or not at all."""

from __future__ import annotations

import json
import time
from itertools import chain, repeat
from pathlib import Path

import pytest

from loadtest.replies import Reply, read_stream, read_whole
from loadtest.samples import Sample, SampleFile, read_samples
from loadtest.summary import by_arm, summarise

DONE = b"data: [DONE]\n"


def event(**data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n"


def chunk(text: str, reason: str | None = None) -> bytes:
    return event(choices=[{"delta": {"content": text}, "finish_reason": reason}])


USAGE = event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 7})


def read(*lines: bytes) -> Reply:
    rest = chain(lines, repeat(b""))
    return read_stream(lambda: next(rest), time.perf_counter())


def test_a_whole_stream_is_ok_and_counts_the_servers_tokens_not_its_chunks() -> None:
    role = event(choices=[{"delta": {"role": "assistant", "content": ""}}])
    reply = read(role, b"\n", chunk("a b"), chunk("c", "length"), USAGE, DONE)
    assert (reply.status, reply.num_tokens, reply.num_prompt_tokens) == ("ok", 7, 5)
    assert len(reply.chunk_s) == 2  # the role's event has no content
    assert reply.finish_reason == "length"


@pytest.mark.parametrize(
    ("lines", "status", "error"),
    [
        ((chunk("a"), chunk("b", "stop"), USAGE), "broken", "before [DONE]"),
        ((), "broken", "before [DONE]"),
        ((chunk("a", "stop"), DONE), "empty", "no completion tokens"),
        ((chunk("a"), USAGE, DONE), "unfinished", "no finish_reason"),
        ((chunk("a"), event(error={"message": "out of slots"}), DONE), "broken", "out of slots"),
        ((b"data: {half\n", DONE), "broken", "not JSON"),
    ],
)
def test_other_streams_are_never_ok(lines: tuple[bytes, ...], status: str, error: str) -> None:
    reply = read(*lines)
    assert reply.status == status
    assert error in str(reply.error)


def test_a_connection_reset_is_a_broken_stream_with_the_chunks_it_had() -> None:
    lines = iter([chunk("a")])

    def readline() -> bytes:
        try:
            return next(lines)
        except StopIteration:
            raise ConnectionResetError("reset by peer") from None

    reply = read_stream(readline, time.perf_counter())
    assert (reply.status, len(reply.chunk_s)) == ("broken", 1)
    assert "reset by peer" in str(reply.error)


def test_a_whole_reply_has_no_chunk_times() -> None:
    body = json.dumps(
        {
            "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 3},
            "metrics": {"speculative_decoding": {"mean_acceptance_length": 1.5}},
        }
    )
    reply = read_whole(body.encode(), time.perf_counter())
    assert (reply.status, reply.num_tokens, reply.chunk_s) == ("ok", 3, [])
    assert reply.speculation == {"mean_acceptance_length": 1.5}


def sample(status: str = "ok", sent_s: float = 0.0, arm: str = "dcoco") -> Sample:
    return Sample(
        arm=arm,
        num_clients=4,
        sent_s=sent_s,
        end_s=2.0,
        chunk_s=(0.5, 1.0, 2.0),
        num_tokens=7,
        num_prompt_tokens=5,
        finish_reason="stop",
        status=status,  # type: ignore[arg-type] # the cases below name statuses as text
        error=None,
        speculation={"mean_acceptance_length": 2.0},
    )


def test_figures_by_hand() -> None:
    figures = summarise([sample(), sample(sent_s=1.0), sample("broken", sent_s=2.0)])
    assert figures["statuses"] == {"ok": 2, "broken": 1}
    assert figures["tokens_per_s"] == 14 / 4  # the broken request's time counts, its tokens do not
    assert figures["ttft_s"]["p50"] == 0.5
    assert figures["tpot_s"]["mean"] == (2.0 - 0.5) / 6
    assert figures["inter_chunk_s"]["n"] == 4
    assert figures["inter_chunk_s"]["max"] == 1.0


def test_errors_alone_give_no_latency() -> None:
    figures = summarise([sample("broken")])
    assert figures["tokens_per_s"] == 0
    assert figures["ttft_s"] is None


def test_samples_of_several_processes_come_back_and_half_a_line_is_passed_over(
    tmp_path: Path,
) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, arm in zip(paths, ["dcoco", "plain"], strict=True):
        file = SampleFile(path)
        file.write(sample(arm=arm))
        file.close()
    with paths[1].open("a") as file_b:
        file_b.write('{"arm": "pl')
    assert [kept.arm for kept in read_samples(paths)] == ["dcoco", "plain"]
    assert set(by_arm(read_samples(paths))) == {"dcoco", "plain"}


def test_a_line_that_is_no_sample_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"arm": "dcoco"}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl:1 is no sample"):
        list(read_samples([path]))
