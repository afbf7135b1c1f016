"""A bar over work of known size, with the time that is left."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn


class WorkBar:
    """Shows how much is done and how long the rest takes at the pace so far; a context manager.

    rich's own estimate looks at the last seconds, and steps here take minutes; and work that an
    earlier run did is no part of the pace.
    """

    def __init__(self, console: Console, total: float) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        self._progress = Progress(*columns, TextColumn("{task.fields[left]}"), console=console)
        self._task = self._progress.add_task("", total=total, left="")
        self._left, self._done = total, 0.0
        self._started = time.monotonic()

    def __enter__(self) -> WorkBar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    @property
    def seconds(self) -> float:
        """Since the bar was made."""
        return time.monotonic() - self._started

    @property
    def time_left(self) -> str:
        """At the pace so far; empty before anything was done."""
        if not self._done:
            return ""
        minutes = self.seconds / self._done * max(0.0, self._left) / 60
        if minutes >= 90:
            return f"{minutes / 60:.1f} h left"
        return f"{minutes:.0f} min left"

    def begin(self, name: str) -> None:
        """Says what is being done."""
        self._progress.update(self._task, description=name)

    def skip(self, work: float) -> None:
        """Work that need not be done."""
        self._left -= work
        self._progress.update(self._task, advance=work, left=self.time_left)

    def advance(self, work: float) -> None:
        """Work that was done."""
        self._done += work
        self.skip(work)
