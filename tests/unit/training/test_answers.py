import gzip
import json
from dataclasses import asdict

import pytest

from dcoco_core.errors import ConfigError
from dcoco_core.training.answers import Answer, is_loop, read_answers

ANSWERS = [
    Answer("own", (1, 2, 3), (4, 5), 0.0, loops=False),
    Answer("bfcl", (1, 9), (7,) * 70, 0.7, loops=True),
]
TEXT = "".join(json.dumps(asdict(answer)) + "\n" for answer in ANSWERS)


def test_plain_and_gzipped(tmp_path):
    (tmp_path / "answers.jsonl").write_text(TEXT)
    (tmp_path / "answers.jsonl.gz").write_bytes(gzip.compress(TEXT.encode()))
    for path in tmp_path.iterdir():
        assert list(read_answers(path)) == ANSWERS


def test_damage_names_the_line(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text(TEXT + '{"src": "x"}\n')
    with pytest.raises(ConfigError, match="line 3 is not an answer"):
        list(read_answers(path))
    path = tmp_path / "answers.jsonl.gz"
    path.write_bytes(gzip.compress(TEXT.encode())[:-9])
    with pytest.raises(ConfigError, match="is not an answer"):
        list(read_answers(path))


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="no answers at"):
        list(read_answers(tmp_path / "none.jsonl"))


def test_loops_are_long_and_poor():
    assert is_loop((1, 2, 3) * 30)
    assert not is_loop((1, 2, 3) * 10)
    assert not is_loop(tuple(range(90)))
