"""A finished evaluation: everything it found, the line of JSON, the tables on the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from dcoco_core.evaluation.bootstrap import Estimate
from dcoco_core.evaluation.check import ReplayCheck
from dcoco_core.evaluation.figures import (
    ALL_SETS,
    DCOCO,
    SetFigures,
    best_sequential,
    sets_longer,
)
from dcoco_core.evaluation.measure import Sizes
from dcoco_core.evaluation.replay import ORACLE
from dcoco_core.evaluation.stage_times import StageTimes
from dcoco_core.evaluation.timing import DecodingTimes
from dcoco_core.overlap import Overlap

GREEDY = "greedy"
_T1 = ("rejection-t1", "coupled-t1")
"""Settings that stand for temperature 1, the first that was measured counts."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything an evaluation found.

    `settings` holds figures by setting and set, ALL_SETS last; `decoding` speeds of one client by
    corrector; `checks` comparisons of replayed answers with real decoding, by setting and
    corrector.
    """

    provenance: dict[str, object]
    stack: dict[str, object]
    sizes: Sizes
    settings: Mapping[str, Mapping[str, SetFigures]]
    decoding: Mapping[str, DecodingTimes]
    stages: Sequence[StageTimes]
    checks: Mapping[str, Mapping[str, ReplayCheck]]
    overlap: Mapping[str, Overlap]

    def dcoco_over_sequential(self, setting: str) -> tuple[str, Estimate] | None:
        """The best sequential corrector and dcoco's ratio to it; None where one is missing."""
        total = self.settings[setting][ALL_SETS]
        best = best_sequential(total)
        if best is None or best not in total.dcoco_over:
            return None
        return best, total.dcoco_over[best]

    def headline(self) -> dict[str, object]:
        """The line of JSON: means over the sets, greedy unless it says otherwise.

        A figure is None where its corrector or its setting was not measured.
        """
        greedy = self.settings[GREEDY][ALL_SETS]
        lengths = {name: f.acceptance_length.value for name, f in greedy.correctors.items()}
        oracle = lengths.pop(ORACLE, None)
        sampled = next((self.settings[name] for name in _T1 if name in self.settings), {})
        sequential = self.dcoco_over_sequential(GREEDY)
        return {
            "acceptance_length": {name: round(value, 4) for name, value in lengths.items()},
            "correct_over_round": {
                name: round(times.total.correct_over_round.value, 4)
                for name, times in self.decoding.items()
                if times.total.correct_over_round is not None
            },
            "ratio_dcoco_none": _ratio(self.settings[GREEDY]),
            "ratio_dcoco_none_t1": _ratio(sampled),
            "ratio_dcoco_best_sequential": _value(sequential[1] if sequential else None),
            "oracle_acceptance_length": None if oracle is None else round(oracle, 4),
            "loop_share": round(greedy.loop_share, 4),
            "n": greedy.n,
        }

    def save(self, path: Path) -> None:
        """All figures as JSON; the counts of sets whose interval is above 1 have a place there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        longer = {
            name: {"sets": len(figures) - 1, "interval_above_1": sets_longer(figures)}
            for name, figures in self.settings.items()
        }
        data = {"headline": self.headline(), "sets_longer": longer, **asdict(self)}
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")

    def terminal_table(self, setting: str) -> Table:
        """Acceptance lengths by set and corrector, with half the width of their intervals."""
        figures = self.settings[setting]
        names = list(figures[ALL_SETS].correctors)
        table = Table(title=f"acceptance length, {setting}")
        for column in ("set", "n", "loops", *names):
            table.add_column(column)
        for one, found in figures.items():
            lengths = [found.correctors[name].acceptance_length for name in names]
            cells = [f"{e.value:.2f} ±{(e.high - e.low) / 2:.2f}" for e in lengths]
            table.add_row(one, str(found.n), f"{found.loop_share:.0%}", *cells)
        return table

    def comparison_table(self, setting: str) -> Table:
        """Every corrector against the uncorrected draft, over all sets."""
        figures = self.settings[setting]
        longer, num_sets = sets_longer(figures), len(figures) - 1
        table = Table(title=f"against the uncorrected draft, {setting}")
        for column in ("corrector", "ratio", "sets above 1", "gap to the oracle captured"):
            table.add_column(column)
        for name, found in figures[ALL_SETS].correctors.items():
            if name in longer:
                gap = "" if found.captured_gap is None else str(found.captured_gap)
                table.add_row(name, str(found.ratio), f"{longer[name]}/{num_sets}", gap)
        return table


def _ratio(figures: Mapping[str, SetFigures]) -> float | None:
    if ALL_SETS not in figures or DCOCO not in figures[ALL_SETS].correctors:
        return None
    return _value(figures[ALL_SETS].correctors[DCOCO].ratio)


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else round(estimate.value, 4)
