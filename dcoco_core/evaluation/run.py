"""Runs an evaluation set by set, keeping what is finished: started again, it goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dcoco_core.drafters.dflash.checkpoint import fingerprint_target
from dcoco_core.drafters.fingerprint import fingerprint_checkpoint
from dcoco_core.evaluation.measure import (
    Sizes,
    decode_speculatively,
    measure_replayed,
    questions_of,
)
from dcoco_core.evaluation.results import (
    RequestResult,
    load_results,
    merge_correctors,
    save_results,
)
from dcoco_core.evaluation.sets import EvalSet
from dcoco_core.evaluation.settings import Setting
from dcoco_core.evaluation.stack import Stack
from dcoco_core.training.generate import Question


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of an evaluation that is done at once and kept.

    `corrector` is named where every corrector needs decoding of its own (rejection). Several sets
    in one unit fill the batch better; one set a unit is resumed more finely.
    """

    setting: Setting
    sets: tuple[EvalSet, ...]
    sizes: Sizes
    corrector: str | None = None

    @property
    def set_names(self) -> set[str]:
        """The sets that results are expected of."""
        return {one.name for one in self.sets}

    @property
    def name(self) -> str:
        """What it is called in files and on the terminal."""
        sets = self.sets[0].name if len(self.sets) == 1 else f"{len(self.sets)}-sets"
        return f"{self.setting.name}/{sets}" + (f".{self.corrector}" if self.corrector else "")


def units_of(
    setting: Setting, groups: Sequence[tuple[EvalSet, ...]], sizes: Sizes, correctors: Sequence[str]
) -> list[Unit]:
    """The units of one setting; `correctors` are those that a rejection setting decodes with."""
    if setting.is_replayed:
        return [Unit(setting, group, sizes) for group in groups]
    return [Unit(setting, group, sizes, name) for group in groups for name in correctors]


class EvaluationRun:
    """Answers and results of one target in a folder."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack, self._folder = stack, folder

    def measure(self, unit: Unit) -> list[RequestResult]:
        """The unit's results, from its file if that was made from the same things."""
        questions = [
            question
            for one in unit.sets
            for question in questions_of(self._stack, one, unit.setting, unit.sizes)
        ]
        identity = self._identity(unit, questions)
        path = self._folder / "results" / f"{unit.name}.json"
        results = load_results(path, identity)
        if results is None:
            order = [one.name for one in unit.sets]
            results = sorted(
                self._measure(unit, questions), key=lambda result: order.index(result.set_name)
            )
            save_results(path, identity, results)
        return results

    def merge(
        self, measured: Sequence[tuple[Unit, list[RequestResult]]]
    ) -> dict[str, list[RequestResult]]:
        """Results by setting; those of one prompt with different correctors become one."""
        by_setting: dict[str, dict[str | None, list[RequestResult]]] = {}
        for unit, results in measured:
            by_corrector = by_setting.setdefault(unit.setting.name, {})
            by_corrector.setdefault(unit.corrector, []).extend(results)
        return {name: merge_correctors(list(parts.values())) for name, parts in by_setting.items()}

    def answers_path(self, setting: Setting, sizes: Sizes) -> Path:
        """Where the plain answers of a setting are kept, for any drafter and corrector."""
        return self._folder / "answers" / f"{setting.name}-{sizes.cap(setting)}.jsonl.gz"

    def _measure(self, unit: Unit, questions: list[Question]) -> Iterator[RequestResult]:
        if unit.corrector is not None:
            return decode_speculatively(
                self._stack, questions, unit.corrector, unit.setting, unit.sizes
            )
        answers = self.answers_path(unit.setting, unit.sizes)
        return measure_replayed(self._stack, questions, unit.setting, unit.sizes, answers)

    def _identity(self, unit: Unit, questions: list[Question]) -> dict[str, Any]:
        """Everything the results depend on."""
        correctors = self._stack.source.correctors
        used = (
            correctors if unit.corrector is None else {unit.corrector: correctors[unit.corrector]}
        )
        prompts = repr([question.prompt_ids for question in questions])
        return {
            "target": fingerprint_target(self._stack.target),
            "drafter": self._stack.projection.fingerprint,
            "correctors": {
                name: folder and fingerprint_checkpoint(folder) for name, folder in used.items()
            },
            "prompts": hashlib.sha256(prompts.encode()).hexdigest()[:16],
            "sizes": asdict(unit.sizes),
        }
