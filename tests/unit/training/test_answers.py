import pytest

from dcoco_core.errors import ConfigError
from dcoco_core.training.answers import (
    Answer,
    append_answers,
    is_loop,
    read_answers,
    repair_answers,
)

ANSWERS = [
    Answer("own", (1, 2, 3), (4, 5), 0.0, loops=False),
    Answer("bfcl", (1, 9), (7,) * 70, 0.7, loops=True),
]


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.jsonl.gz"])
def test_round_trip_over_several_writes(tmp_path, name):
    path = tmp_path / "deep" / name
    append_answers(path, ANSWERS[:1])
    append_answers(path, ANSWERS[1:])
    assert list(read_answers(path)) == ANSWERS


@pytest.mark.parametrize(("name", "cut"), [("answers.jsonl", 9), ("answers.jsonl.gz", 20)])
def test_an_interrupted_write_costs_its_own_lines_only(tmp_path, name, cut):
    path = tmp_path / name
    append_answers(path, ANSWERS[:1])
    append_answers(path, ANSWERS[1:])
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(read_answers(path)) == ANSWERS[:1]
    assert repair_answers(path) == 1
    append_answers(path, ANSWERS[1:])
    assert list(read_answers(path)) == ANSWERS


def test_a_file_that_is_not_there_needs_no_repair(tmp_path):
    assert repair_answers(tmp_path / "none.jsonl") == 0


def test_damage_names_the_line(tmp_path):
    path = tmp_path / "answers.jsonl"
    append_answers(path, ANSWERS)
    path.write_text(path.read_text() + '{"src": "x"}\n')
    with pytest.raises(ConfigError, match="line 3 is not an answer"):
        list(read_answers(path))


def test_missing_file_names_the_command(tmp_path):
    with pytest.raises(ConfigError, match="training generate"):
        list(read_answers(tmp_path / "none.jsonl"))


def test_loops_are_long_and_poor():
    assert is_loop((1, 2, 3) * 30)
    assert not is_loop((1, 2, 3) * 10)
    assert not is_loop(tuple(range(90)))
