"""The page of an evaluation: every table and plot of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from dcoco_core.evaluation.document import Block, Heading, Items, Paragraph, Plot, Table
from dcoco_core.evaluation.figures import ALL_SETS, DCOCO, SetFigures, sets_longer
from dcoco_core.evaluation.report import Report
from dcoco_core.evaluation.timing import STAGES

TIMES = "times"

_INTRODUCTION = """\
Acceptance length is the number of tokens committed per target pass, the target's own token
included. A set's figure is the mean over its requests, that of "all sets" the mean over sets.
Brackets are 95% bootstrap intervals over requests, comparisons are paired by prompt. Every block
has {num_draft_tokens} proposals, and all of them are verified. The "oracle" always picks the right
one of the drafter's 16 candidates where it is among them: no corrector can do better. An answer
loops if it has over 60 tokens and fewer than 40% of them are distinct. All digits are in
evaluation.json."""
_CHECK = """\
Settings that are replayed take one recorded answer for all correctors. Some of those prompts were
also really decoded with each: how many gave the recorded text, and how many of these took the very
rounds that the replay found."""


def page(report: Report, plots: Mapping[str, Sequence[str]]) -> Iterator[Block]:
    """Tables of every setting, then times, then where it all comes from.

    Args:
        report: the figures.
        plots: file names, by setting and TIMES, of plots that lie beside the page.
    """
    yield Heading("Acceptance and speed of the correctors", 1)
    yield Paragraph(_INTRODUCTION.format(num_draft_tokens=report.sizes.num_draft_tokens))
    yield from _overview(report)
    for name, figures in report.settings.items():
        yield Heading(name)
        yield from map(Plot, plots.get(name, ()))
        yield from _by_set(figures)
        yield from _together(figures)
    yield from _decoding(report)
    yield from _stages(report)
    yield from map(Plot, plots.get(TIMES, ()))
    yield from _checks(report)
    yield from _origin(report)


def _overview(report: Report) -> Iterator[Block]:
    rows = []
    for name, figures in report.settings.items():
        total, longer = figures[ALL_SETS], sets_longer(figures)
        found = total.correctors.get(DCOCO)
        best = report.dcoco_over_sequential(name)
        rows.append(
            [
                name,
                str(total.n),
                _optional(found and found.ratio),
                f"{longer[DCOCO]} of {len(figures) - 1}" if DCOCO in longer else "",
                f"{best[1]} ({best[0]})" if best else "",
                _optional(found and found.captured_gap),
            ]
        )
    header = ["setting", "n", "dcoco / none", "sets above 1", "dcoco / best sequential"]
    yield Table([*header, "gap to the oracle captured"], rows)


def _by_set(figures: Mapping[str, SetFigures]) -> Iterator[Block]:
    names = list(figures[ALL_SETS].correctors)
    rows = [
        [one, str(f.n), f"{f.num_tokens:.0f}", f"{f.loop_share:.0%}"]
        + [str(f.correctors[name].acceptance_length) for name in names]
        for one, f in figures.items()
    ]
    yield Table(["set", "n", "tokens", "loops", *names], rows)
    compared = [name for name in names if figures[ALL_SETS].correctors[name].ratio is not None]
    if compared:
        yield Paragraph("Ratio to the uncorrected draft:")
        ratios = [
            [one, *(_optional(f.correctors[name].ratio) for name in compared)]
            for one, f in figures.items()
        ]
        yield Table(["set", *compared], ratios)
        counts = ", ".join(f"{name} {count}" for name, count in sets_longer(figures).items())
        yield Paragraph(
            f"Sets of {len(figures) - 1} where the interval of the ratio is above 1: {counts}."
        )


def _together(figures: Mapping[str, SetFigures]) -> Iterator[Block]:
    total = figures[ALL_SETS]
    yield Paragraph(
        "All sets; ratio, difference and captured gap (the share of the way to the oracle) are "
        "against the uncorrected draft."
    )
    rows = [
        [name, str(f.acceptance_length), str(f.pooled)]
        + [str(total.without_loops[name]) if total.without_loops else ""]
        + [_optional(estimate) for estimate in (f.ratio, f.difference, f.captured_gap)]
        + [_optional(total.dcoco_over.get(name))]
        for name, f in total.correctors.items()
    ]
    header = ["corrector", "mean", "pooled", "without loops", "ratio", "difference"]
    yield Table([*header, "gap captured", "dcoco over it"], rows)
    shares = {name: f.per_position for name, f in total.correctors.items()}
    yield Paragraph("Accepted / drafted, at each place of the block:")
    yield _by_place("corrector", shares)
    if total.recall_at_1:
        yield Paragraph(
            "How often the drafter's first, or one of its first 16 candidates is right:"
        )
        yield _by_place("recall", {"@1": total.recall_at_1, "@16": total.recall_at_16})
    if total.by_verified:
        yield Paragraph("Acceptance length if only the first proposals of each block are verified:")
        yield _by_place("corrector", total.by_verified)


def _decoding(report: Report) -> Iterator[Block]:
    if not report.decoding:
        return
    yield Heading("Speed of one client")
    first = next(iter(report.decoding.values()))
    yield Paragraph(
        f"Greedy, real decoding, in turns, n = {first.total.tokens_per_s.n} prompts; stages are ms "
        "per round."
    )
    rows = [
        [name, str(t.total.tokens_per_s), str(t.total.over_plain)]
        + [_optional(t.total.stage_ms.get(stage)) for stage in STAGES]
        + [_optional(t.total.correct_over_round)]
        for name, t in report.decoding.items()
    ]
    header = ["corrector", "tokens/s", "over plain", *STAGES, "correct / round"]
    yield Table(header, rows)
    by_set = [
        [one, str(first.by_set[one].tokens_per_s.n)]
        + [f"{times.by_set[one].tokens_per_s.value:.1f}" for times in report.decoding.values()]
        for one in first.by_set
    ]
    yield Paragraph("Tokens/s by set:")
    yield Table(["set", "n", *report.decoding], by_set)


def _stages(report: Report) -> Iterator[Block]:
    for times in report.stages:
        yield Heading(f"Stages at {times.num_rows} row{'s' if times.num_rows > 1 else ''}")
        yield Paragraph(
            f"Median ms of {times.num_repeats} repeats, with quartiles: verify {times.verify_ms}, "
            f"draft {times.draft_ms}."
        )
        rows = [
            [name, str(ms), f"{times.correct_over_rest(name):.4f}"]
            for name, ms in times.correct_ms.items()
        ]
        yield Table(["corrector", "correct, ms", "over draft + verify"], rows)


def _checks(report: Report) -> Iterator[Block]:
    if not report.checks:
        return
    yield Heading("Replay against real decoding")
    yield Paragraph(_CHECK)
    rows = [
        [setting, name, str(c.num_prompts), str(c.num_same_text), str(c.num_same_counters)]
        for setting, checks in report.checks.items()
        for name, c in checks.items()
    ]
    yield Table(["setting", "corrector", "n", "same text", "same rounds"], rows)


def _origin(report: Report) -> Iterator[Block]:
    yield Heading("Where the figures come from")
    facts = report.provenance | report.stack | asdict(report.sizes)
    yield Items([f"{key}: {value}" for key, value in facts.items()])
    if report.overlap:
        yield Paragraph(
            "Prompts on the training side that are, or share 13 words in a row with, evaluation "
            "prompts, and how many of them training leaves out:"
        )
        rows = [
            [name, *map(str, (o.num_training, o.num_exact, o.num_shared_words, o.num_copied))]
            for name, o in report.overlap.items()
        ]
        yield Table(["source", "prompts", "the same", "13 words", "left out"], rows)


def _by_place(kind: str, shares: Mapping[str, Sequence[float] | Sequence[float | None]]) -> Table:
    width = max(len(values) for values in shares.values())
    rows = [[name, *map(_optional, values)] for name, values in shares.items()]
    return Table([kind, *(str(place + 1) for place in range(width))], rows)


def _optional(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)
