"""Results survive their file, and a file made from other things does not count."""

from __future__ import annotations

from dataclasses import replace

from dcoco_core.evaluation.replay import ReplayedAnswer
from dcoco_core.evaluation.results import RequestResult, load_results, save_results
from dcoco_core.metrics import SpeculationRecord
from dcoco_core.training.generate import Question

QUESTION = Question("ifeval", (1, 2, 3), 0.0)
ANSWER = ReplayedAnswer((5, 6, 7, 8), [2, 2, 1], {"none": [0, 2, 1]}, [3, 2], [2, 1], [3, 2])


def test_a_replayed_answer_as_a_result() -> None:
    result = RequestResult.of_replayed(QUESTION, ANSWER)
    assert result.set_name == "ifeval"
    assert result.num_tokens == 4
    assert result.records["none"].num_committed == 3
    # One round accepts nothing, the next both that are left.
    assert result.by_verified["none"] == [1.5, 1.5]
    assert result.recall == [(3, 2, 3), (2, 1, 2)]
    assert not result.loops


def test_results_are_read_as_they_were_written(tmp_path) -> None:
    path = tmp_path / "folder" / "ifeval.json"
    identity = {"drafter": "f1", "correctors": {"none": None}}
    decoded = RequestResult.of_decoded(QUESTION, (5,) * 80, "none", SpeculationRecord())
    assert decoded.loops
    results = [RequestResult.of_replayed(QUESTION, ANSWER), decoded]
    assert load_results(path, identity) is None
    save_results(path, identity, results)
    read = load_results(path, identity)
    assert read is not None
    assert [replace(one, recall=[tuple(row) for row in one.recall]) for one in read] == [
        replace(one, recall=list(one.recall)) for one in results
    ]
    assert load_results(path, identity | {"drafter": "f2"}) is None
    assert [file.name for file in path.parent.iterdir()] == ["ifeval.json"]
