"""A stage that fails is left alone until it answers."""

import asyncio

import pytest

from deployments.pipeline import breaker as module
from deployments.pipeline.breaker import Breaker


class Stage:
    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.num_calls = self.num_checks = 0

    async def work(self) -> str:
        self.num_calls += 1
        if self.failure is not None:
            raise self.failure
        return "done"

    async def check(self) -> None:
        self.num_checks += 1
        if self.failure is not None:
            raise self.failure


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.005)


async def until_available(breaker: Breaker) -> None:
    for _ in range(400):
        if breaker.is_available:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the breaker did not close within 2 s")


async def test_a_failing_stage_is_called_once_and_then_again_when_it_answers() -> None:
    stage = Stage()
    breaker = Breaker("stage", stage.check, deadline_s=1.0)
    assert await breaker.call(stage.work) == "done"
    stage.failure = RuntimeError("gone")
    for _ in range(10):
        assert await breaker.call(stage.work) is None
    assert (stage.num_calls, breaker.num_failures) == (2, 1)
    stage.failure = None
    await until_available(breaker)
    assert stage.num_checks >= 1
    assert await breaker.call(stage.work) == "done"


async def test_a_late_answer_counts_as_a_failure() -> None:
    stage = Stage()
    breaker = Breaker("stage", stage.check, deadline_s=0.01)
    assert await breaker.call(lambda: asyncio.sleep(1.0, "late")) is None
    assert breaker.num_failures == 1
    await until_available(breaker)


async def test_calls_that_fail_together_start_one_check() -> None:
    stage = Stage()
    stage.failure = RuntimeError("gone")
    breaker = Breaker("stage", stage.check, deadline_s=1.0)
    assert await asyncio.gather(*(breaker.call(stage.work) for _ in range(5))) == [None] * 5
    await asyncio.sleep(0.008)
    assert stage.num_checks <= 1
    breaker.close()


async def test_pauses_grow_while_a_stage_answers_checks_but_cannot_work() -> None:
    stage = Stage()
    breaker = Breaker("stage", stage.check, deadline_s=0.001)
    loop = asyncio.get_running_loop()
    pauses = []
    for _ in range(4):
        assert await breaker.call(lambda: asyncio.sleep(1.0, "late")) is None
        started = loop.time()
        await until_available(breaker)
        pauses.append(loop.time() - started)
    assert pauses[3] > 3 * pauses[0]


async def test_cancelling_the_caller_is_no_failure_of_the_stage() -> None:
    stage = Stage()
    breaker = Breaker("stage", stage.check, deadline_s=1.0)
    task = asyncio.create_task(breaker.call(lambda: asyncio.sleep(1.0)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert breaker.is_available
