"""Runs an evaluation set by set, keeping what is finished: started again, it goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
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
    recorded_answers,
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

_REPLAYED_COST, _DECODED_COST = 3.0, 4.0
"""Rough work per token of an answer, in target rows: answering plainly, a pass over prompt and
answer and a draft after every token; or a block in every round."""


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
        self._questions: dict[tuple[str, Setting, Sizes], list[Question]] = {}

    def work(self, unit: Unit) -> float:
        """How much there is to do, for a bar; only sums and shares of it mean something."""
        cost = _DECODED_COST if unit.corrector else _REPLAYED_COST
        return len(self._asked(unit)) * unit.sizes.cap(unit.setting) * cost

    def kept(self, unit: Unit) -> list[RequestResult] | None:
        """The unit's results if its file was made from the same things, None if there is none."""
        return load_results(self._path(unit), self._identity(unit))

    def measure(self, unit: Unit, on_work: Callable[[float], None]) -> list[RequestResult]:
        """Measures the unit and keeps its results.

        Args:
            unit: what is asked, and how.
            on_work: called with what was done of the unit's work, little by little.
        """
        questions = self._asked(unit)
        left, num_left = self.work(unit), len(questions)

        def report(work: float) -> None:
            nonlocal left
            left -= work
            on_work(work)

        results = []
        for result in self._measure(unit, questions, report):
            results.append(result)
            report(left / num_left)
            num_left -= 1
        order = [one.name for one in unit.sets]
        results.sort(key=lambda result: order.index(result.set_name))
        save_results(self._path(unit), self._identity(unit), results)
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
        name = f"{setting.name}-{sizes.cap(setting)}-{fingerprint_target(self._stack.target)}"
        return self._folder / "answers" / f"{name}.jsonl"

    def _asked(self, unit: Unit) -> list[Question]:
        questions: list[Question] = []
        for one in unit.sets:
            key = (one.name, unit.setting, unit.sizes)
            if key not in self._questions:
                self._questions[key] = questions_of(self._stack, one, unit.setting, unit.sizes)
            questions += self._questions[key]
        return questions

    def _measure(
        self, unit: Unit, questions: list[Question], on_work: Callable[[float], None]
    ) -> Iterator[RequestResult]:
        if unit.corrector is not None:
            return decode_speculatively(
                self._stack, questions, unit.corrector, unit.setting, unit.sizes
            )
        half = self.work(unit) / max(1, len(questions)) / 2
        recorded = recorded_answers(
            self._stack,
            questions,
            unit.setting,
            unit.sizes,
            self.answers_path(unit.setting, unit.sizes),
            lambda: on_work(half),
        )
        return measure_replayed(self._stack, questions, recorded, unit.sizes)

    def _path(self, unit: Unit) -> Path:
        return self._folder / "results" / f"{unit.name}.json"

    def _identity(self, unit: Unit) -> dict[str, Any]:
        """Everything the results depend on."""
        correctors = self._stack.source.correctors
        used = (
            correctors if unit.corrector is None else {unit.corrector: correctors[unit.corrector]}
        )
        prompts = repr([question.prompt_ids for question in self._asked(unit)])
        return {
            "target": fingerprint_target(self._stack.target),
            "drafter": self._stack.projection.fingerprint,
            "correctors": {
                name: folder and fingerprint_checkpoint(folder) for name, folder in used.items()
            },
            "prompts": hashlib.sha256(prompts.encode()).hexdigest()[:16],
            "sizes": asdict(unit.sizes),
        }
