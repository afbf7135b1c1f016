"""The page of an evaluation: tables in Markdown, plots beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from dcoco_core.evaluation.figures import (
    ALL_SETS,
    BASE,
    CorrectorFigures,
    SetFigures,
    best_sequential,
)
from dcoco_core.evaluation.replay import ORACLE
from dcoco_core.evaluation.report import GREEDY, Report
from dcoco_core.evaluation.timing import STAGES

_INTRODUCTION = """# Acceptance and speed of the correctors

Made by `make eval`; all digits are in [evaluation.json](evaluation.json).

Acceptance length is the number of tokens committed per target pass, the target's own token
included. A set's figure is the mean over its requests, that of *all sets* the mean over sets.
Brackets are 95% bootstrap intervals over requests, comparisons are paired by prompt. Every block
has {num_draft_tokens} proposals, and all of them are verified. *oracle* always picks the right one
of the drafter's 16 candidates where it is among them: no corrector can do better. An answer loops
if it has over 60 tokens and fewer than 40% of them are distinct.
"""


def markdown(report: Report, plots: Sequence[str]) -> str:
    """Tables of every setting, then times, then where it all comes from.

    Args:
        report: the figures.
        plots: file names of plots that lie beside the page.
    """
    return "\n".join(_lines(report, plots)) + "\n"


def _lines(report: Report, plots: Sequence[str]) -> Iterator[str]:
    yield _INTRODUCTION.format(num_draft_tokens=report.sizes.num_draft_tokens)
    if report.dcoco_over_sequential is not None:
        best = best_sequential(report.settings[GREEDY][ALL_SETS])
        yield f"dcoco / {best} (the best sequential one), greedy: {report.dcoco_over_sequential}\n"
    for plot in plots:
        yield f"![{Path(plot).stem}]({plot})\n"
    for name, figures in report.settings.items():
        yield f"## {name}\n"
        yield from _by_set(figures)
        yield from _together(figures)
    yield from _times(report)
    yield from _origin(report)


def _by_set(figures: Mapping[str, SetFigures]) -> Iterator[str]:
    names = list(figures[ALL_SETS].correctors)
    rows = (
        [one, str(f.n), f"{f.loop_share:.0%}"]
        + [str(f.correctors[name].acceptance_length) for name in names]
        for one, f in figures.items()
    )
    yield from _table(["set", "n", "loops", *names], rows)
    sets = [found for one, found in figures.items() if one != ALL_SETS]
    counts = ", ".join(
        f"{name} {sum(_is_longer(found.correctors[name]) for found in sets)}"
        for name in names
        if name not in (BASE, ORACLE)
    )
    if counts:
        yield f"Sets of {len(sets)} where the interval of the ratio is above 1: {counts}.\n"


def _is_longer(figures: CorrectorFigures) -> bool:
    return figures.ratio is not None and figures.ratio.low > 1.0


def _together(figures: Mapping[str, SetFigures]) -> Iterator[str]:
    total = figures[ALL_SETS]
    yield "All sets; ratio, difference and captured gap are against the uncorrected draft.\n"
    rows = (
        [name, str(f.pooled), str(total.without_loops[name]) if total.without_loops else ""]
        + [_optional(estimate) for estimate in (f.ratio, f.difference, f.captured_gap)]
        for name, f in total.correctors.items()
    )
    header = ["corrector", "pooled", "without loops", "ratio", "difference", "gap captured"]
    yield from _table(header, rows)
    shares = {name: f.per_position for name, f in total.correctors.items()}
    yield "Accepted / drafted, at each place of the block:\n"
    yield from _by_place("corrector", shares)
    if total.recall_at_1:
        yield "How often the drafter's first, or one of its first 16 candidates is right:\n"
        yield from _by_place("recall", {"@1": total.recall_at_1, "@16": total.recall_at_16})
    if total.by_verified:
        yield "Acceptance length if only the first proposals of each block are verified:\n"
        yield from _by_place("corrector", total.by_verified)


def _times(report: Report) -> Iterator[str]:
    if report.decoding:
        yield "## Speed of one client\n"
        n = next(iter(report.decoding.values())).tokens_per_s.n
        yield f"Greedy, real decoding of {n} prompts, in turns; stages are ms per round.\n"
        rows = (
            [name, str(t.tokens_per_s), str(t.over_plain)]
            + [_optional(t.stage_ms.get(stage)) for stage in STAGES]
            + [_optional(t.correct_over_round)]
            for name, t in report.decoding.items()
        )
        header = ["corrector", "tokens/s", "over plain", *STAGES, "correct / round"]
        yield from _table(header, rows)
    for times in report.stages:
        yield f"## Stages at {times.num_rows} row{'s' if times.num_rows > 1 else ''}\n"
        yield f"Median ms: verify {times.verify_ms:.2f}, draft {times.draft_ms:.2f}.\n"
        rows = (
            [name, f"{ms:.3f}", f"{times.correct_over_rest(name):.4f}"]
            for name, ms in times.correct_ms.items()
        )
        yield from _table(["corrector", "ms", "over draft + verify"], rows)


def _origin(report: Report) -> Iterator[str]:
    yield "## Where the figures come from\n"
    for key, value in (report.provenance | report.stack | asdict(report.sizes)).items():
        yield f"- {key}: {value}"
    if report.overlap:
        yield "\nTraining prompts that are, or share 13 words in a row with, evaluation prompts:\n"
        rows = (
            [name, str(o.num_training), str(o.num_exact), str(o.num_shared_words)]
            for name, o in report.overlap.items()
        )
        yield from _table(["source", "prompts", "the same", "13 words"], rows)


def _by_place(
    kind: str, shares: Mapping[str, Sequence[float] | Sequence[float | None]]
) -> Iterator[str]:
    width = max(len(values) for values in shares.values())
    rows = ([name, *map(_optional, values)] for name, values in shares.items())
    yield from _table([kind, *(str(place + 1) for place in range(width))], rows)


def _table(header: Sequence[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _optional(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)
