"""The warm-up goes through every corrector and leaves nothing behind."""

import pytest

from deployments.config import AppArgs
from deployments.warm_up import warm_up
from tests.unit.deployments.fakes import FormulaPath, FormulaVerifier

ARGS = AppArgs(
    drafter="d",
    correctors={"none": None, "dcoco": "c"},
    num_draft_tokens=4,
)


async def test_every_stage_is_used_and_freed() -> None:
    verifier, path = FormulaVerifier(2), FormulaPath()
    await warm_up(verifier, path, ARGS)
    assert path.num_drafts >= 1
    assert set(path.released) == {"warm-up none", "warm-up dcoco"}
    assert not path.holding
    assert verifier.num_free_slots == 2


async def test_without_a_drafter_the_target_alone_is_warmed_up() -> None:
    verifier = FormulaVerifier(2)
    await warm_up(verifier, None, AppArgs())
    assert verifier.num_steps > 1
    assert verifier.num_free_slots == 2


async def test_a_path_that_fails_does_not_keep_the_server_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    verifier, path = FormulaVerifier(2), FormulaPath()
    path.failure = RuntimeError("no drafter")
    await warm_up(verifier, path, ARGS)
    assert verifier.num_free_slots == 2
    assert "no drafts during warm-up" in caplog.text
