"""The benchmark's stages form the real ring, and its figures are what they say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deployments.bench_stages import BenchCorrector, BenchDrafter
from deployments.bench_transport import BenchVerifier, _summary
from tests.unit.deployments.pipeline.endpoints import HERE, KEY


class Handle:
    """A handle to an object of this process."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica

    def options(self, *, _by_reference: bool) -> "Handle":
        return self

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._replica, name)
        return type("Method", (), {"remote": staticmethod(method)})


@asynccontextmanager
async def ring() -> AsyncIterator[BenchVerifier]:
    corrector = BenchCorrector(KEY, HERE)
    drafter = BenchDrafter(Handle(corrector), KEY, HERE)  # type: ignore[arg-type]
    stages: Any = (Handle(drafter), Handle(corrector))
    verifier = BenchVerifier(stages[0], stages[1], KEY, HERE)
    yield verifier
    for stage in (verifier, drafter, corrector):
        await stage.close()


async def test_messages_per_round_do_not_depend_on_the_rows() -> None:
    async with ring() as verifier:
        # To the drafter, on to the corrector, and both ways back.
        assert [await verifier.messages_per_round(rows, 2) for rows in (1, 32)] == [4, 4]


async def test_every_transport_is_timed_as_often() -> None:
    async with ring() as verifier:
        for times in (await verifier.hops("1KB", 3, 0), await verifier.rounds(2, 3, 1)):
            assert {name: len(found) for name, found in times.items()} == {
                "socket": 3,
                "handle": 3,
                "in-process": 3,
            }
            assert min(map(min, times.values())) > 0


def test_a_figure_is_the_median_over_repeats_in_milliseconds() -> None:
    repeats = [dict.fromkeys(("socket", "handle", "in-process"), [s] * 3) for s in (1, 9, 2)]
    found = _summary([{name: list(map(float, t)) for name, t in r.items()} for r in repeats])
    assert found["socket"] == {"p50_ms": pytest.approx(2000), "p99_ms": pytest.approx(2000)}
