from __future__ import annotations

import json
from pathlib import Path

import pytest

from dcoco_core.emulation.tape import FORMAT, AnswerTape
from dcoco_core.errors import ConfigError

TAPE = AnswerTape(tuple(range(10)), vocab_size=10)


def test_a_request_reads_around_and_around() -> None:
    (first,) = TAPE.tokens(noise_key=7, start=0, count=1)
    assert TAPE.tokens(7, 0, 25) == [(first + place) % 10 for place in range(25)]
    assert TAPE.tokens(7, 4, 3) == TAPE.tokens(7, 0, 7)[4:]


def test_keys_read_from_different_places() -> None:
    assert len({TAPE.tokens(key, 0, 1)[0] for key in range(100)}) == 10


def test_another_token_is_never_the_same() -> None:
    assert all(TAPE.other(token) != token for token in range(10))
    assert all(0 <= TAPE.other(token) < 10 for token in range(10))


def test_synthetic_tapes_are_fixed_by_their_seed() -> None:
    tape = AnswerTape.synthetic(50, num_tokens=200, seed=3)
    assert tape == AnswerTape.synthetic(50, num_tokens=200, seed=3)
    assert tape != AnswerTape.synthetic(50, num_tokens=200, seed=4)
    assert len(tape.token_ids) == 200


def test_recorded_tapes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    data = {"format": FORMAT, "vocab_size": 10, "token_ids": list(range(10))}
    path.write_text(json.dumps(data))
    assert AnswerTape.load(path) == TAPE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", FORMAT),
        ('{"format": "other"}', FORMAT),
        (f'{{"format": "{FORMAT}", "vocab_size": 3, "token_ids": [1, true]}}', "token_ids"),
        (f'{{"format": "{FORMAT}", "vocab_size": "3", "token_ids": [1]}}', "vocab_size"),
        (f'{{"format": "{FORMAT}", "vocab_size": 3, "token_ids": [3]}}', "0 to 2"),
        (f'{{"format": "{FORMAT}", "vocab_size": 3, "token_ids": []}}', "at least one"),
        (f'{{"format": "{FORMAT}", "vocab_size": 1, "token_ids": [0]}}', "vocab_size"),
    ],
)
def test_bad_tapes_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        AnswerTape.load(path)


def test_a_missing_tape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        AnswerTape.load(tmp_path / "missing.json")
