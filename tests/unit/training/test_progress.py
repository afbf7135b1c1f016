"""What a command shows of its progress, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from dcoco_core.training.progress import ProgressDisplay, shown


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_a_line_every_half_minute():
    stream, clock = io.StringIO(), Clock()
    with ProgressDisplay("answering", 4000, "prompts", stream=stream, clock=clock) as display:
        display.update(0)
        for done in range(100, 4001, 100):
            clock.now += 5
            display.update(done, "75 tokens a second")
            assert len(stream.getvalue().splitlines()) == done // 600
    lines = stream.getvalue().splitlines()
    assert lines[0] == ("answering: 600/4,000 prompts, 20 a second, 2:50 left, 75 tokens a second")
    assert lines[-1].startswith("answering: 4,000/4,000 prompts, 20 a second, 0:00 left")
    assert len(lines) == 7


def test_what_was_done_before_took_no_time():
    stream, clock = io.StringIO(), Clock()
    with ProgressDisplay("training", 1.0, "", stream=stream, clock=clock) as display:
        display.update(0.5)
        clock.now += 7200
        display.update(0.6, "loss 2.1")
        assert display.facts() == "60.0 %, 8:00:00 left, loss 2.1"


def test_a_terminal_has_a_bar_with_the_same_facts():
    stream, clock = Terminal(), Clock()
    with ProgressDisplay("answering", 40, "prompts", stream=stream, clock=clock) as display:
        display.update(0)
        clock.now += 10
        display.update(10)
    written = stream.getvalue()
    assert "answering" in written
    assert "10/40 prompts, 1.00 a second, 0:30 left" in written


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_other_processes_show_nothing(stream):
    clock = Clock()
    with ProgressDisplay("x", 3, "steps", is_shown=False, stream=stream, clock=clock) as display:
        clock.now += 60
        display.update(3)
    assert stream.getvalue() == ""


def test_items_pass_through(capsys):
    assert list(shown("abc", "reading", 3, "texts")) == ["a", "b", "c"]
    assert "reading: 3/3 texts" in capsys.readouterr().err


def test_nothing_to_do_is_no_error(capsys):
    assert list(shown("", "reading", 0, "texts")) == []
    assert "reading: 0/0 texts" in capsys.readouterr().err
