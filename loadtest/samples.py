"""What is kept of one request, and the file it is kept in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["ok", "http_error", "broken", "empty", "unfinished"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. Times are seconds since the request was sent, `sent_s` is the wall clock's.

    `chunk_s` are the arrivals of the events that carried content, one a verification round; for a
    reply that is not streamed it is empty, and so are the latencies that need it. A request counts
    as fast only if its status is `ok`.
    """

    arm: str
    num_clients: int
    sent_s: float
    end_s: float
    chunk_s: tuple[float, ...]
    num_tokens: int
    num_prompt_tokens: int
    finish_reason: str | None
    status: Status
    error: str | None
    speculation: dict[str, Any] | None

    @property
    def ttft_s(self) -> float | None:
        """Request sent to first content."""
        return self.chunk_s[0] if self.chunk_s else None

    @property
    def tpot_s(self) -> float | None:
        """(end - first content) / (tokens - 1): vLLM's definition."""
        if not self.chunk_s or self.num_tokens < 2:
            return None
        return (self.end_s - self.chunk_s[0]) / (self.num_tokens - 1)

    @property
    def inter_chunk_s(self) -> tuple[float, ...]:
        """Gaps between successive events with content."""
        pairs = zip(self.chunk_s, self.chunk_s[1:], strict=False)
        return tuple(later - earlier for earlier, later in pairs)


class SampleFile:
    """One line of JSON a request, written as the request ends: a stopped run loses nothing."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1)

    def write(self, sample: Sample) -> None:
        self._file.write(json.dumps(asdict(sample)) + "\n")

    def close(self) -> None:
        self._file.close()


def read_samples(paths: Iterable[Path]) -> Iterator[Sample]:
    """Samples of several files, one a process; the order of the requests is lost.

    A last line that a killed process left half written is passed over. Raises ValueError for any
    other line that is no sample.
    """
    for path in paths:
        lines = path.read_text().splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            if number == len(lines) and not line.endswith("\n"):
                break
            try:
                fields = json.loads(line)
                yield Sample(**{**fields, "chunk_s": tuple(fields["chunk_s"])})
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path}:{number} is no sample: {error}") from error
