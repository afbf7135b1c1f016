"""A whole evaluation: answers and acceptance of every setting, times, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from rich.console import Console

from dcoco_core.errors import ConfigError
from dcoco_core.evaluation.check import ReplayCheck, check_replay
from dcoco_core.evaluation.figures import setting_figures
from dcoco_core.evaluation.measure import Sizes, questions_of, recorded_answers
from dcoco_core.evaluation.progress import WorkBar
from dcoco_core.evaluation.report import GREEDY, Report
from dcoco_core.evaluation.results import RequestResult
from dcoco_core.evaluation.run import EvaluationRun, Unit, units_of
from dcoco_core.evaluation.sets import EvalSet
from dcoco_core.evaluation.settings import Setting
from dcoco_core.evaluation.stack import Stack
from dcoco_core.evaluation.stage_times import StageTimes, time_stages
from dcoco_core.evaluation.timing import DecodingTimes, time_decoding
from dcoco_core.overlap import EvaluationText, Overlap
from dcoco_core.provenance import describe_run
from dcoco_core.training.generate import Question
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
        checked_prompts: of each replayed setting without reasoning, decoded with every corrector
            to compare with the replay; 0 for none.
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
    checked_prompts: int = 4
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
    run = EvaluationRun(stack, folder)
    by_setting = run.merge(_measured(run, plan.units(list(stack.correctors)), console))
    console.print("taking times")
    decoding, stages = _times(stack, plan, run)
    return Report(
        provenance=describe_run(),
        stack=_facts(stack),
        sizes=plan.sizes,
        settings={name: setting_figures(results) for name, results in by_setting.items()},
        decoding=decoding,
        stages=stages,
        checks=_checks(stack, plan, run),
        overlap=count_overlap(plan.sets),
    )


def _measured(
    run: EvaluationRun, units: Sequence[Unit], console: Console
) -> list[tuple[Unit, list[RequestResult]]]:
    """The results of every unit; what is finished and what is left is on the console."""
    measured = []
    with WorkBar(console, sum(map(run.work, units))) as bar:
        for number, unit in enumerate(units, 1):
            bar.begin(unit.name)
            begun = bar.seconds
            results = run.kept(unit)
            if results is None:
                results = run.measure(unit, bar.advance)
                spent = f"{bar.seconds - begun:.0f} s, {bar.seconds / 60:.1f} min so far"
            else:
                bar.skip(run.work(unit))
                spent = "an earlier run"
            measured.append((unit, results))
            line = f"{number}/{len(units)} {unit.name}: {len(results)} answers in {spent}"
            console.print(f"{line}, {bar.time_left}" if bar.time_left else line)
            for name in unit.set_names - {result.set_name for result in results}:
                console.print(f"  no prompt of {name} is short enough: left out", style="red")
    return measured


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


def _times(
    stack: Stack, plan: Plan, run: EvaluationRun
) -> tuple[dict[str, DecodingTimes], list[StageTimes]]:
    if not plan.timed_prompts:
        return {}, []
    greedy = next(setting for setting in plan.settings if setting.name == GREEDY)
    questions = _first_questions(stack, plan, greedy, plan.timed_prompts)
    prompts = [(question.src, question.prompt_ids) for question in questions]
    length = plan.sizes.num_draft_tokens
    decoding = time_decoding(stack, prompts, plan.timed_tokens, length)
    if not plan.timed_rows:
        return decoding, []
    answers = run.answers_path(greedy, plan.sizes)
    recorded = recorded_answers(stack, questions, greedy, plan.sizes, answers)
    return decoding, [time_stages(stack, recorded, rows) for rows in plan.timed_rows]


def _checks(stack: Stack, plan: Plan, run: EvaluationRun) -> dict[str, dict[str, ReplayCheck]]:
    if not plan.checked_prompts:
        return {}
    found = {}
    for setting in plan.settings:
        if setting.is_replayed and not setting.is_reasoning:
            questions = _first_questions(stack, plan, setting, plan.checked_prompts)
            answers = run.answers_path(setting, plan.sizes)
            recorded = recorded_answers(stack, questions, setting, plan.sizes, answers)
            found[setting.name] = check_replay(stack, recorded, plan.sizes)
    return found


def _first_questions(stack: Stack, plan: Plan, setting: Setting, count: int) -> list[Question]:
    """Every set's first question, then every set's second, ..."""
    sizes = replace(plan.sizes, prompts=-(-count // len(plan.sets)))
    by_set = [questions_of(stack, one, setting, sizes) for one in plan.sets]
    return [one for turn in zip_longest(*by_set) for one in turn if one is not None][:count]


def _facts(stack: Stack) -> dict[str, object]:
    source = stack.source
    return {
        "target": stack.target.spec.name,
        "drafter": f"{source.drafter.name} ({stack.projection.fingerprint})",
        "correctors": ", ".join(
            folder.name if folder else name for name, folder in source.correctors.items()
        ),
    }
