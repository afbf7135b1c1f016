"""Plots of an evaluation, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dcoco_core.evaluation.figures import ALL_SETS, SetFigures
from dcoco_core.evaluation.stage_times import StageTimes


def write_plots(folder: Path, setting: str, figures: Mapping[str, SetFigures]) -> list[str]:
    """Acceptance by set, by place in the block and by verified length; returns the file names."""
    folder.mkdir(parents=True, exist_ok=True)
    total = figures[ALL_SETS]
    plots = {"by-set": Figure((14, 5), layout="constrained")}
    _bars(plots["by-set"].add_subplot(title=f"Acceptance length, {setting}"), figures)

    plots["by-place"] = Figure((6, 4), layout="constrained")
    title = f"Accepted / drafted, {setting}"
    axes = plots["by-place"].add_subplot(title=title, xlabel="place in the block")
    _curves(axes, {name: f.per_position for name, f in total.correctors.items()})
    if total.by_verified:
        plots["by-verified"] = Figure((6, 4), layout="constrained")
        title = f"Acceptance length, {setting}"
        axes = plots["by-verified"].add_subplot(title=title, xlabel="proposals verified of a block")
        _curves(axes, total.by_verified)
    for kind, plot in plots.items():
        plot.savefig(folder / f"{setting}-{kind}.png", dpi=110)
    return [f"{setting}-{kind}.png" for kind in plots]


def write_time_plots(folder: Path, stages: Sequence[StageTimes]) -> list[str]:
    """Correction times by corrector, a group of bars for each batch size; the file's name."""
    if not stages:
        return []
    plot = Figure((9, 4), layout="constrained")
    axes = plot.add_subplot(title="Correction time, median and quartiles", ylabel="ms")
    width = 0.8 / len(stages)
    for place, times in enumerate(stages):
        spreads = list(times.correct_ms.values())
        axes.bar(
            [number + place * width for number in range(len(spreads))],
            [spread.median for spread in spreads],
            width,
            yerr=[[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]],
            label=f"{times.num_rows} row{'s' if times.num_rows > 1 else ''}",
            error_kw={"linewidth": 0.8},
        )
    names = list(stages[0].correct_ms)
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right")
    axes.set_yscale("log")
    axes.legend(fontsize="small")
    folder.mkdir(parents=True, exist_ok=True)
    plot.savefig(folder / "correction-times.png", dpi=110)
    return ["correction-times.png"]


def _bars(axes: Axes, figures: Mapping[str, SetFigures]) -> None:
    names = list(figures[ALL_SETS].correctors)
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        lengths = [found.correctors[name].acceptance_length for found in figures.values()]
        below = [max(0.0, length.value - length.low) for length in lengths]
        above = [max(0.0, length.high - length.value) for length in lengths]
        axes.bar(
            [number + place * width for number in range(len(figures))],
            [length.value for length in lengths],
            width,
            yerr=[below, above],
            label=name,
            error_kw={"linewidth": 0.8},
        )
    axes.set_xticks(range(len(figures)), list(figures), rotation=25, ha="right")
    axes.set_ylim(bottom=1.0)
    axes.margins(x=0.01)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _curves(
    axes: Axes, lines: Mapping[str, Sequence[float]] | Mapping[str, Sequence[float | None]]
) -> None:
    for name, values in lines.items():
        known = [(place, value) for place, value in enumerate(values, 1) if value is not None]
        places, shares = [place for place, _ in known], [value for _, value in known]
        axes.plot(places, shares, marker="o", markersize=3, label=name)
    axes.legend(fontsize="small")
