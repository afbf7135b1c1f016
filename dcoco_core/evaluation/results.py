"""What was counted for one prompt, and the files that hold it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dcoco_core.evaluation.replay import ReplayedAnswer
from dcoco_core.metrics import SpeculationRecord
from dcoco_core.training.answers import is_loop
from dcoco_core.training.generate import Question


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
    def of_decoded(
        cls,
        question: Question,
        response_ids: tuple[int, ...],
        corrector: str,
        record: SpeculationRecord,
    ) -> RequestResult:
        """An answer that was really decoded with one corrector."""
        return cls(
            set_name=question.src,
            prompt=_key(question),
            loops=is_loop(response_ids),
            num_tokens=len(response_ids),
            records={corrector: record},
        )

    @property
    def has_rounds(self) -> bool:
        """Whether the answer was long enough for a draft."""
        return all(record.num_rounds for record in self.records.values())


def merge_correctors(decoded: Sequence[Sequence[RequestResult]]) -> list[RequestResult]:
    """One result per prompt out of a list per corrector; a prompt that one lacks is left out."""
    by_prompt: dict[tuple[str, str], list[RequestResult]] = {}
    for results in decoded:
        for result in results:
            by_prompt.setdefault((result.set_name, result.prompt), []).append(result)
    return [
        replace(
            same[0],
            loops=any(result.loops for result in same),
            num_tokens=sum(result.num_tokens for result in same) / len(same),
            records={name: r for result in same for name, r in result.records.items()},
        )
        for same in by_prompt.values()
        if len(same) == len(decoded)
    ]


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
