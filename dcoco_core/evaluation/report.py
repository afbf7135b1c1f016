"""A finished evaluation: everything it found, the line of JSON, the table on the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from dcoco_core.evaluation.bootstrap import Estimate
from dcoco_core.evaluation.figures import ALL_SETS, SetFigures
from dcoco_core.evaluation.measure import Sizes
from dcoco_core.evaluation.overlap import Overlap
from dcoco_core.evaluation.replay import ORACLE
from dcoco_core.evaluation.timing import DecodingTimes, StageTimes

GREEDY = "greedy"
_T1 = ("rejection-t1", "coupled-t1")
"""Settings that stand for temperature 1, the first that was measured counts."""
DCOCO = "dcoco"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything an evaluation found. `settings` holds figures by setting and set, ALL_SETS last.

    `dcoco_over_sequential` compares dcoco with the best sequential corrector, greedily.
    """

    provenance: dict[str, object]
    stack: dict[str, object]
    sizes: Sizes
    settings: Mapping[str, Mapping[str, SetFigures]]
    dcoco_over_sequential: Estimate | None
    decoding: Mapping[str, DecodingTimes]
    stages: Sequence[StageTimes]
    overlap: Mapping[str, Overlap]

    def headline(self) -> dict[str, object]:
        """The line of JSON: means over the sets, greedy unless it says otherwise.

        A figure is None where its corrector or its setting was not measured.
        """
        greedy = self.settings[GREEDY][ALL_SETS]
        lengths = {name: f.acceptance_length.value for name, f in greedy.correctors.items()}
        oracle = lengths.pop(ORACLE, None)
        sampled = next((self.settings[name] for name in _T1 if name in self.settings), {})
        return {
            "acceptance_length": {name: round(value, 4) for name, value in lengths.items()},
            "correct_over_round": {
                name: round(times.correct_over_round.value, 4)
                for name, times in self.decoding.items()
                if times.correct_over_round is not None
            },
            "ratio_dcoco_none": _ratio(self.settings[GREEDY]),
            "ratio_dcoco_none_t1": _ratio(sampled),
            "ratio_dcoco_best_sequential": _value(self.dcoco_over_sequential),
            "oracle_acceptance_length": None if oracle is None else round(oracle, 4),
            "loop_share": round(greedy.loop_share, 4),
            "n": greedy.n,
        }

    def save(self, path: Path) -> None:
        """All figures as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {"headline": self.headline(), **asdict(self)}
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


def _ratio(figures: Mapping[str, SetFigures]) -> float | None:
    if ALL_SETS not in figures or DCOCO not in figures[ALL_SETS].correctors:
        return None
    return _value(figures[ALL_SETS].correctors[DCOCO].ratio)


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else round(estimate.value, 4)
