"""Detokenising and stop strings do not depend on how text is divided."""

from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dcoco_core.types import FinishReason, Verdict
from deployments.streaming import Detokenizer, StopMatcher, TextStream, cut


@pytest.fixture(scope="module")
def byte_tokenizer() -> Tokenizer:
    """One token per byte: every character above U+007F is split."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def verdict(token_ids: list[int], finish_reason: FinishReason | None = None) -> Verdict:
    return Verdict("r", 0, 0, tuple(token_ids), len(token_ids), len(token_ids) - 1, finish_reason)


def in_rounds(ids: list[int], chooser: random.Random) -> list[list[int]]:
    rounds = []
    while ids:
        size = chooser.randint(1, 7)
        rounds.append(ids[:size])
        ids = ids[size:]
    return rounds


def run(tokenizer: Tokenizer, stops: list[str], rounds: list[list[int]]) -> tuple[str, int]:
    """The text, and the tokens counted, of rounds the last of which ends by length."""
    stream = TextStream(tokenizer, stops)
    text, num_tokens = "", 0
    for index, ids in enumerate(rounds):
        is_last = index == len(rounds) - 1
        delta = stream.push(verdict(ids, FinishReason.LENGTH if is_last else None))
        text += delta.text
        num_tokens += len(delta.verdict.token_ids)
        if delta.verdict.finish_reason is not None:
            break
    return text, num_tokens


def expected(text: str, stops: list[str]) -> tuple[str, int]:
    """By definition: the shortest beginning of the text (in bytes) that ends in a stop string."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], len(text[:end].encode())
    return text, len(text.encode())


@pytest.mark.parametrize("seed", range(40))
def test_stop_strings_by_definition(byte_tokenizer: Tokenizer, seed: int) -> None:
    chooser = random.Random(seed)
    text = "".join(chooser.choice("ab🦜é") for _ in range(40))
    stops = [
        "".join(chooser.choice("ab🦜é") for _ in range(chooser.randint(2, 5))) for _ in range(3)
    ]
    ids = byte_tokenizer.encode(text).ids
    assert len(ids) == len(text.encode())
    assert run(byte_tokenizer, stops, in_rounds(ids, chooser)) == expected(text, stops)


@pytest.mark.parametrize("seed", range(40))
def test_any_bytes_in_any_rounds_give_the_text_of_all_of_them(
    byte_tokenizer: Tokenizer, seed: int
) -> None:
    chooser = random.Random(seed)
    ids = [chooser.randrange(256) for _ in range(60)]
    text, num_tokens = run(byte_tokenizer, [], in_rounds(ids, chooser))
    assert (text, num_tokens) == (byte_tokenizer.decode(ids), 60)


def test_an_incomplete_character_waits(byte_tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(byte_tokenizer)
    pieces = [detokenizer.push(token_id) for token_id in byte_tokenizer.encode("a🦜b").ids]
    assert pieces == ["a", "", "", "", "🦜", "b"]
    assert detokenizer.flush() == ""


def test_a_stop_string_that_the_last_flush_completes(byte_tokenizer: Tokenizer) -> None:
    stream = TextStream(byte_tokenizer, ["b\ufffd"])
    delta = stream.push(verdict(byte_tokenizer.encode("ab🦜").ids[:-1], FinishReason.LENGTH))
    assert (delta.text, delta.verdict.finish_reason) == ("a", FinishReason.STOP)


def test_nothing_that_could_begin_a_stop_string_is_shown() -> None:
    matcher = StopMatcher(["</s>", "<b>"])
    assert matcher.push("x</") == ("x", False)
    assert matcher.push("sx <") == ("</sx ", False)
    assert matcher.push("b") == ("", False)
    assert matcher.push(">y") == ("", True)


def test_the_stop_string_complete_first_wins() -> None:
    assert StopMatcher(["abcd", "bc"]).push("xabcd") == ("xa", True)
    assert StopMatcher(["c", "abc"]).push("xabc") == ("x", True)


def test_a_stop_string_that_overlaps_itself() -> None:
    matcher = StopMatcher(["aab"])
    assert matcher.push("aaa") == ("a", False)
    assert matcher.push("b") == ("", True)


def test_cut_counts_only_accepted_tokens_that_are_kept() -> None:
    whole = Verdict("r", 0, 5, (1, 2, 3, 4), 7, 3)
    assert cut(whole, 2) == Verdict("r", 0, 5, (1, 2), 7, 2, FinishReason.STOP)
    assert cut(whole, 4).num_accepted == 3
