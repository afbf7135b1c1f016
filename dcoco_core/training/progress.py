"""How far a command is: a bar on a terminal, elsewhere a plain line every half minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TextIO, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_T = TypeVar("_T")

_SECONDS_PER_LINE = 30.0


class ProgressDisplay:
    """Shows what is done of a total, how fast it goes and how long the rest will take.

    Rate and time left count what was done since the display was opened: a resumed run begins with
    much done that took no time.

    Args:
        label: what is being done.
        total: all there is to do.
        unit: of the total, in the plural; an empty one shows per cent.
        is_shown: False shows nothing, for all processes but the main one.
        stream: where to, standard error by default.
        clock: seconds.
    """

    def __init__(
        self,
        label: str,
        total: float,
        unit: str,
        *,
        is_shown: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label, self._total, self._unit = label, total, unit
        self._stream, self._clock = stream or sys.stderr, clock
        self._is_shown = is_shown
        self._done, self._note = 0.0, ""
        self._first: float | None = None  # what was done before the display was opened
        self._bar: Progress | None = None
        if is_shown and self._stream.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[facts]}"),
                console=Console(file=self._stream),
                redirect_stdout=sys.stdout.isatty(),
            )
            self._task = self._bar.add_task(label, total=total, facts="")

    def __enter__(self) -> Self:
        self._began = self._last_line = self._clock()
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._is_shown:
            self._print_line()

    def update(self, done: float, note: str = "") -> None:
        """Shows `done` of the total, and what else there is to say."""
        self._done, self._note = done, note
        if self._first is None:
            self._first, self._began = done, self._clock()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, facts=self.facts())
        elif self._is_shown and self._clock() - self._last_line >= _SECONDS_PER_LINE:
            self._print_line()

    def facts(self) -> str:
        """Done and total, rate, time left and the note, in one line."""
        if self._unit:
            parts = [f"{self._done:,.0f}/{self._total:,.0f} {self._unit}"]
        else:
            parts = [f"{100 * self._done / self._total:.1f} %"]
        spent = self._clock() - self._began
        gained = self._done - (self._first or 0.0)
        if gained > 0 and spent > 0:
            if self._unit:
                rate = gained / spent
                parts.append(f"{rate:,.{0 if rate >= 10 else 2}f} a second")
            left = max(0.0, self._total - self._done) * spent / gained
            parts.append(f"{_duration(left)} left")
        if self._note:
            parts.append(self._note)
        return ", ".join(parts)

    def _print_line(self) -> None:
        self._last_line = self._clock()
        print(f"{self._label}: {self.facts()}", file=self._stream, flush=True)


def shown(items: Iterable[_T], label: str, total: int, unit: str) -> Iterator[_T]:
    """The items, with a display of how many have been taken."""
    with ProgressDisplay(label, total, unit) as display:
        display.update(0)
        for number, item in enumerate(items, 1):
            yield item
            display.update(number)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
