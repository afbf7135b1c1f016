"""The engine against a verifier whose text is a formula: nothing is lost, mixed up or left open."""

import asyncio
import random
from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest

from dcoco_core.errors import CapacityError, RequestError
from dcoco_core.types import Request
from deployments.engine import Engine, EngineSettings
from deployments.leases import EngineError
from tests.unit.deployments.fakes import (
    FormulaPath,
    FormulaVerifier,
    expected_text,
    make_request,
)


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_true():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not become true within 2 s")


class Setup:
    def __init__(self, num_slots: int, settings: EngineSettings, has_path: bool) -> None:
        self.verifier = FormulaVerifier(num_slots)
        self.path = FormulaPath()
        self.engine = Engine(self.verifier, self.path if has_path else None, settings)

    async def read(self, request: Request) -> list[int]:
        self.path.prompt_ids[request.request_id] = request.prompt_ids[0]
        return [
            token async for verdict in self.engine.generate(request) for token in verdict.token_ids
        ]

    async def settle(self) -> None:
        """Waits until nothing is held any more, which must happen soon."""
        await until(
            lambda: not (self.verifier.open_ids or self.path.holding or self.engine.num_running)
        )


@asynccontextmanager
async def running(num_slots: int = 4, has_path: bool = True, **settings: float):
    setup = Setup(num_slots, EngineSettings(**settings), has_path)  # type: ignore[arg-type]
    try:
        yield setup
        await setup.settle()
        assert setup.verifier.num_free_slots == num_slots
    finally:
        await setup.engine.close()


@pytest.mark.parametrize("has_path", [True, False])
async def test_mixed_requests_get_their_own_text(has_path: bool) -> None:
    async with running(num_slots=4, has_path=has_path) as setup:
        requests = [
            make_request(f"r{n}", prompt_id=n + 1, max_tokens=1 + 3 * n, drafts=n % 5)
            for n in range(12)
        ]
        texts = await asyncio.gather(*map(setup.read, requests))
        assert texts == [expected_text(request) for request in requests]
        counts = setup.engine.counts
        assert (counts.requests, counts.finished, counts.failed) == (12, 12, 0)
        assert counts.committed_tokens == sum(map(len, texts))
        assert (counts.accepted_tokens > 0) == has_path


async def test_rows_are_batched_and_stay_together() -> None:
    async with running(num_slots=4) as setup:
        setup.path.delay_s = 0.005
        requests = [make_request(f"r{n}", n + 1, max_tokens=40) for n in range(4)]
        await asyncio.gather(*map(setup.read, requests))
        assert setup.verifier.rows_per_step.count(4) > 0.8 * setup.verifier.num_steps


async def test_a_late_request_joins_and_plain_rows_go_on_while_a_draft_is_out() -> None:
    async with running(draft_deadline_s=5.0) as setup:
        setup.path.gate = asyncio.Event()
        drafted = asyncio.create_task(setup.read(make_request("drafted", 5)))
        await until(lambda: setup.path.num_drafts > 0)
        plain = make_request("plain", 6, max_tokens=30, drafts=0)
        assert await setup.read(plain) == expected_text(plain)
        assert not drafted.done()
        setup.path.gate.set()
        assert await drafted == expected_text(make_request("drafted", 5))


async def test_waiting_is_first_come_first_served_then_refused() -> None:
    async with running(num_slots=1, max_waiting=3) as setup:
        order: list[str] = []

        async def read(name: str) -> None:
            await setup.read(make_request(name))
            order.append(name)

        tasks = []
        for name in "abcd":
            tasks.append(asyncio.create_task(read(name)))
            await asyncio.sleep(0)
        with pytest.raises(CapacityError, match="all 1 slots are taken and"):
            await setup.read(make_request("e"))
        await asyncio.gather(*tasks)
        assert order == list("abcd")
        assert setup.engine.counts.refused == 1
        assert await setup.read(make_request("e")) == expected_text(make_request("e"))


async def test_a_refused_request_hurts_nobody_else() -> None:
    async with running() as setup:
        good = asyncio.create_task(setup.read(make_request("good", 3, max_tokens=50)))
        with pytest.raises(RequestError, match="out of range"):
            await setup.read(make_request("bad", 5000))
        with pytest.raises(RequestError, match="'good' is open"):
            await setup.read(make_request("good"))
        assert await good == expected_text(make_request("good", 3, max_tokens=50))


async def test_cancel_while_waiting() -> None:
    async with running(num_slots=1) as setup:
        first = asyncio.create_task(setup.read(make_request("first", max_tokens=60)))
        await asyncio.sleep(0)
        second = asyncio.create_task(setup.read(make_request("second")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert setup.engine.num_waiting >= 1
        second.cancel()
        assert await first == expected_text(make_request("first", max_tokens=60))
        assert setup.engine.num_waiting == 0
        assert setup.engine.counts.cancelled == 1


async def test_cancel_while_its_draft_is_out_frees_the_slot_at_once() -> None:
    async with running(num_slots=1, draft_deadline_s=5.0) as setup:
        setup.path.gate = asyncio.Event()
        task = asyncio.create_task(setup.read(make_request("a", max_tokens=500)))
        await until(lambda: setup.path.num_drafts > 0)
        task.cancel()
        plain = make_request("b", drafts=0)
        # The only slot goes to the next request although the draft has not come back.
        assert await setup.read(plain) == expected_text(plain)
        assert setup.path.holding == {"a"}
        setup.path.gate.set()
        await setup.settle()
        assert setup.path.released == ["a"]


async def test_closing_the_generator_between_verdicts() -> None:
    async with running() as setup:
        verdicts = setup.engine.generate(make_request("a", max_tokens=900))
        await anext(verdicts)
        await verdicts.aclose()
        await setup.settle()
        assert setup.engine.counts.cancelled == 1


async def test_fifty_disconnects_at_random_moments_leave_nothing() -> None:
    generator = random.Random(0)
    async with running(num_slots=4, max_waiting=64) as setup:
        setup.path.delay_s = 0.002

        async def read_and_leave(number: int) -> None:
            verdicts = setup.engine.generate(make_request(f"r{number}", max_tokens=900))
            try:
                async with asyncio.timeout(generator.uniform(0.0, 0.1)):
                    async for _ in verdicts:
                        pass
            except TimeoutError:
                await verdicts.aclose()

        await asyncio.gather(*map(read_and_leave, range(50)))
        await setup.settle()
        assert setup.engine.num_waiting == 0
        counts = setup.engine.counts
        assert counts.requests == counts.cancelled + counts.finished


async def test_a_failing_draft_path_costs_speed_not_tokens() -> None:
    async with running() as setup:
        setup.path.failure = RuntimeError("drafter died")
        request = make_request("a", 9, max_tokens=30)
        assert await setup.read(request) == expected_text(request)
        counts = setup.engine.counts
        # One attempt found out; rows were not sent again while nobody answered.
        assert setup.engine.num_draft_failures == 1
        assert counts.drafted_rounds == 0
        assert not setup.engine.is_drafting
        await setup.read(make_request("plain", 9, max_tokens=30))
        assert counts.drafted_rounds == 0
        setup.path.failure = None
        await until(lambda: setup.engine.is_drafting)
        setup.path.holding.clear()  # a drafter that died held nothing
        again = make_request("b", 9, max_tokens=30)
        assert await setup.read(again) == expected_text(again)
        assert counts.accepted_tokens > 0


async def test_a_slow_draft_path_is_left_at_its_deadline() -> None:
    async with running(draft_deadline_s=0.02) as setup:
        setup.path.gate = asyncio.Event()
        request = make_request("a", 4, max_tokens=30)
        assert await setup.read(request) == expected_text(request)
        assert setup.engine.num_draft_failures >= 1
        setup.path.gate.set()
        await until(lambda: setup.engine.is_drafting)
        # What could not be released meanwhile goes with the next release.
        await setup.read(make_request("b", 4, max_tokens=30))
        await until(lambda: "a" in setup.path.released)


async def test_gaps_and_lost_rows_are_decoded_plainly() -> None:
    async with running() as setup:
        setup.path.num_gaps_left = 3
        requests = [make_request(f"r{n}", n + 1, max_tokens=30) for n in range(3)]
        texts = await asyncio.gather(*map(setup.read, requests))
        assert texts == [expected_text(request) for request in requests]
        setup.path.is_losing_rows = True
        requests = [make_request(f"s{n}", n + 1, max_tokens=30) for n in range(3)]
        texts = await asyncio.gather(*map(setup.read, requests))
        assert texts == [expected_text(request) for request in requests]


async def test_an_unread_request_is_given_up() -> None:
    async with running(lease_timeout_s=0.02) as setup:
        setup.path.delay_s = 0.002
        verdicts = setup.engine.generate(make_request("a", max_tokens=900))
        await anext(verdicts)
        await asyncio.sleep(0.1)
        assert setup.engine.num_running == 0
        with pytest.raises(EngineError, match=r"nobody has read for 0\.02 s"):
            async for _ in verdicts:
                pass
        assert setup.engine.counts.expired == 1


async def test_a_failing_step_ends_its_requests_with_an_error_and_nothing_hangs() -> None:
    async with running(num_slots=2) as setup:
        setup.verifier.failure = RuntimeError("out of memory")
        results = await asyncio.gather(
            *(setup.read(make_request(f"r{n}")) for n in range(2)), return_exceptions=True
        )
        assert [type(result) for result in results] == [EngineError] * 2
        assert "out of memory" in str(results[0])
        setup.engine.check_health()  # once is not yet sick
        setup.verifier.failure = None
        request = make_request("later")
        assert await setup.read(request) == expected_text(request)


async def test_repeated_failures_make_the_engine_unhealthy() -> None:
    async with running() as setup:
        setup.verifier.failure = RuntimeError("broken")
        for n in range(3):
            with pytest.raises(EngineError):
                await setup.read(make_request(f"r{n}"))
        with pytest.raises(EngineError, match="last 3 steps"):
            setup.engine.check_health()


async def test_close_ends_requests_with_an_error() -> None:
    setup = Setup(2, EngineSettings(), has_path=True)
    setup.path.gate = asyncio.Event()
    task = asyncio.create_task(setup.read(make_request("a")))
    await until(lambda: setup.path.num_drafts > 0)
    await setup.engine.close()
    with pytest.raises(EngineError, match="stopping"):
        await task


async def test_an_idle_engine_does_nothing() -> None:
    async with running() as setup:
        await setup.read(make_request("a"))
        await setup.settle()
        steps = setup.verifier.num_steps
        await asyncio.sleep(0.05)
        assert setup.verifier.num_steps == steps
