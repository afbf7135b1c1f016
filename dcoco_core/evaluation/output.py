"""Writes a report: figures as JSON, plots, and the page as Markdown and as one HTML file."""

from __future__ import annotations

from pathlib import Path

from dcoco_core.evaluation.document import to_html, to_markdown
from dcoco_core.evaluation.page import TIMES, page
from dcoco_core.evaluation.plots import write_plots, write_time_plots
from dcoco_core.evaluation.report import Report


def write_report(report: Report, folder: Path) -> None:
    """Makes evaluation.json, evaluation.md, evaluation.html and the plots in `folder`."""
    report.save(folder / "evaluation.json")
    plots = {name: write_plots(folder, name, found) for name, found in report.settings.items()}
    plots[TIMES] = write_time_plots(folder, report.stages)
    blocks = list(page(report, plots))
    (folder / "evaluation.md").write_text(to_markdown(blocks), encoding="utf-8")
    (folder / "evaluation.html").write_text(to_html(blocks, folder), encoding="utf-8")
