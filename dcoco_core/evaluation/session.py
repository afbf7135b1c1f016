"""A whole evaluation: answers and acceptance of every setting, times, and the report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from rich.console import Console

from dcoco_core.errors import ConfigError
from dcoco_core.evaluation.bootstrap import Estimate
from dcoco_core.evaluation.figures import (
    ALL_SETS,
    SetFigures,
    best_sequential,
    ratio_of,
    setting_figures,
)
from dcoco_core.evaluation.measure import Sizes, questions_of, recorded_answers
from dcoco_core.evaluation.overlap import EvaluationText, Overlap
from dcoco_core.evaluation.report import DCOCO, GREEDY, Report
from dcoco_core.evaluation.results import RequestResult
from dcoco_core.evaluation.run import EvaluationRun, Unit, units_of
from dcoco_core.evaluation.sets import EvalSet
from dcoco_core.evaluation.settings import Setting
from dcoco_core.evaluation.stack import Stack
from dcoco_core.evaluation.timing import DecodingTimes, StageTimes, time_decoding, time_stages
from dcoco_core.provenance import describe_run
from dcoco_core.training.prompts import SOURCES, training_prompts


@dataclass(frozen=True, slots=True)
class Plan:
    """What an evaluation does.

    Attributes:
        sets, settings: what is asked, and how; the greedy setting has to be among them.
        sizes: how much is asked where one recorded answer serves every corrector.
        sampled_prompts: of each set, where every corrector decodes for itself (None: all).
        sampled_correctors: those that do; None for all.
        timed_prompts: decoded for times, 0 for no times.
        timed_tokens: generated after each of them.
        timed_rows: batch sizes at which stages are timed alone.
        one_unit: all sets at once, which fills batches better; else set by set, which resumes
            more finely.
    """

    sets: Sequence[EvalSet]
    settings: Sequence[Setting]
    sizes: Sizes
    sampled_prompts: int | None = None
    sampled_correctors: Sequence[str] | None = None
    timed_prompts: int = 8
    timed_tokens: int = 64
    timed_rows: Sequence[int] = (1, 32)
    one_unit: bool = False

    def __post_init__(self) -> None:
        names = [setting.name for setting in self.settings]
        if GREEDY not in names:
            raise ConfigError(f"the settings need {GREEDY!r} among them, got {', '.join(names)}")

    def units(self, correctors: Sequence[str]) -> list[Unit]:
        """The parts of the evaluation, in order."""
        groups = [tuple(self.sets)] if self.one_unit else [(one,) for one in self.sets]
        own = self.sampled_correctors or correctors
        used = [name for name in correctors if name in own]
        units: list[Unit] = []
        for setting in self.settings:
            sizes = self.sizes
            if not setting.is_replayed and self.sampled_prompts is not None:
                sizes = replace(sizes, prompts=self.sampled_prompts)
            units += units_of(setting, groups, sizes, used)
        return units


def evaluate(stack: Stack, plan: Plan, folder: Path, console: Console) -> Report:
    """Runs what of `plan` is not finished in `folder`, and reports on all of it.

    Raises:
        ConfigError: a set's package is not installed, or lengths that do not fit the model.
    """
    started = time.monotonic()
    run = EvaluationRun(stack, folder)
    units = plan.units(list(stack.correctors))
    measured = []
    for number, unit in enumerate(units, 1):
        begun = time.monotonic()
        results = run.measure(unit)
        measured.append((unit, results))
        now = time.monotonic()
        console.print(
            f"{number}/{len(units)} {unit.name}: {len(results)} answers in {now - begun:.0f} s, "
            f"{(now - started) / 60:.1f} min so far"
        )
        for name in unit.set_names - {result.set_name for result in results}:
            console.print(f"  no prompt of {name} is short enough: it is left out", style="red")
    by_setting = run.merge(measured)
    figures = {name: setting_figures(results) for name, results in by_setting.items()}
    decoding, stages = _times(stack, plan, run)
    console.print(f"times taken, {(time.monotonic() - started) / 60:.1f} min in all")
    return Report(
        provenance=describe_run(),
        stack=_facts(stack),
        sizes=plan.sizes,
        settings=figures,
        dcoco_over_sequential=_over_sequential(figures[GREEDY], by_setting[GREEDY]),
        decoding=decoding,
        stages=stages,
        overlap=count_overlap(plan.sets),
    )


def count_overlap(sets: Sequence[EvalSet], max_chars: int = 1200) -> dict[str, Overlap]:
    """What of the training prompts is in `sets`, by source; sources not installed are left out."""
    text = EvaluationText(prompt.text for one in sets for prompt in one.prompts())
    found = {}
    for source in SOURCES:
        try:
            found[source] = text.overlap(training_prompts(source, max_chars))
        except ConfigError:  # its package is not installed: nothing was trained on it here
            continue
    return found


def _over_sequential(
    figures: Mapping[str, SetFigures], results: Sequence[RequestResult]
) -> Estimate | None:
    return ratio_of(results, DCOCO, best_sequential(figures[ALL_SETS]))


def _times(
    stack: Stack, plan: Plan, run: EvaluationRun
) -> tuple[dict[str, DecodingTimes], list[StageTimes]]:
    if not plan.timed_prompts:
        return {}, []
    greedy = next(setting for setting in plan.settings if setting.name == GREEDY)
    length = plan.sizes.num_draft_tokens
    sizes = replace(plan.sizes, prompts=-(-plan.timed_prompts // len(plan.sets)))
    by_set = [questions_of(stack, one, greedy, sizes) for one in plan.sets]
    # Every set's first question comes before any set's second.
    questions = [one for turn in zip_longest(*by_set) for one in turn if one is not None]
    prompts = [(question.src, question.prompt_ids) for question in questions][: plan.timed_prompts]
    decoding = time_decoding(stack, prompts, plan.timed_tokens, length)
    answers = run.answers_path(greedy, plan.sizes)
    recorded = recorded_answers(stack, questions, greedy, plan.sizes, answers)
    return decoding, [time_stages(stack, recorded, rows) for rows in plan.timed_rows]


def _facts(stack: Stack) -> dict[str, object]:
    source = stack.source
    return {
        "target": stack.target.spec.name,
        "drafter": f"{source.drafter.name} ({stack.projection.fingerprint})",
        "correctors": ", ".join(
            folder.name if folder else name for name, folder in source.correctors.items()
        ),
    }
