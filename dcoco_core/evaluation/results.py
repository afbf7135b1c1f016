"""What was counted for one prompt, and the files that hold it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dcoco_core.evaluation.replay import ReplayedAnswer
from dcoco_core.metrics import SpeculationRecord
from dcoco_core.training.answers import is_loop
from dcoco_core.training.generate import Question


@dataclass(frozen=True, slots=True)
class DecodedAnswer:
    """An answer that was really decoded speculatively, with its counters."""

    question: Question
    response_ids: tuple[int, ...]
    record: SpeculationRecord


@dataclass(frozen=True, slots=True)
class RequestResult:
    """One prompt under several correctors.

    Attributes:
        set_name: the set the prompt is from.
        prompt: a hash of its tokens, by which results of one prompt find each other.
        loops: the answer, or one of them where correctors have their own, repeats itself.
        num_tokens: of the answer, or the mean of them.
        records: counters by corrector.
        by_verified: by corrector, acceptance length when only the first 1, 2, ... proposals of the
            same blocks are verified; empty where answers are not replayed.
        recall: by place in a block, [times asked, found first, found among 16]; likewise.
    """

    set_name: str
    prompt: str
    loops: bool
    num_tokens: float
    records: Mapping[str, SpeculationRecord]
    by_verified: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    recall: Sequence[Sequence[int]] = ()

    @classmethod
    def of_replayed(cls, question: Question, answer: ReplayedAnswer) -> RequestResult:
        """All correctors on one recorded answer."""
        lengths = range(1, len(answer.asked) + 1)
        return cls(
            set_name=question.src,
            prompt=_key(question),
            loops=is_loop(answer.response_ids),
            num_tokens=len(answer.response_ids),
            records={name: answer.speculate(name) for name in answer.num_accepted},
            by_verified={
                name: [answer.speculate(name, k).mean_acceptance_length for k in lengths]
                for name in answer.num_accepted
            },
            recall=list(zip(answer.asked, answer.found_at_1, answer.found_at_16, strict=True)),
        )

    @classmethod
    def of_decoded(cls, answers: Mapping[str, DecodedAnswer]) -> RequestResult:
        """One prompt's answers by corrector."""
        first = next(iter(answers.values()))
        lengths = [len(answer.response_ids) for answer in answers.values()]
        return cls(
            set_name=first.question.src,
            prompt=_key(first.question),
            loops=any(is_loop(answer.response_ids) for answer in answers.values()),
            num_tokens=sum(lengths) / len(lengths),
            records={name: answer.record for name, answer in answers.items()},
        )

    @property
    def has_rounds(self) -> bool:
        """Whether the answer was long enough for a draft."""
        return all(record.num_rounds for record in self.records.values())


def of_decoded(answers: Mapping[str, Iterable[DecodedAnswer]]) -> list[RequestResult]:
    """Results by prompt, from the answers of every corrector."""
    by_prompt: dict[tuple[int, ...], dict[str, DecodedAnswer]] = {}
    for name, decoded in answers.items():
        for answer in decoded:
            by_prompt.setdefault(answer.question.prompt_ids, {})[name] = answer
    return [RequestResult.of_decoded(found) for found in by_prompt.values()]


def save_results(path: Path, identity: Mapping[str, Any], results: Sequence[RequestResult]) -> None:
    """Writes results, whole or not at all, with what they depend on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    data = {"identity": dict(identity), "results": [asdict(result) for result in results]}
    partial.write_text(json.dumps(data), encoding="utf-8")
    partial.replace(path)


def load_results(path: Path, identity: Mapping[str, Any]) -> list[RequestResult] | None:
    """What save_results wrote; None if there is no such file or it was made from other things."""
    if not path.exists():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["identity"] != json.loads(json.dumps(dict(identity))):
        return None
    return [
        RequestResult(
            **{
                **result,
                "records": {n: SpeculationRecord(**r) for n, r in result["records"].items()},
            }
        )
        for result in data["results"]
    ]


def _key(question: Question) -> str:
    return hashlib.sha256(repr(question.prompt_ids).encode()).hexdigest()[:16]
