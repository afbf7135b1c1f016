"""Drafter and corrector by socket fail, fall back and come back as they do by handle."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from dcoco_core.errors import CheckpointError
from dcoco_core.types import Draft, DraftRequest
from deployments.engine import Engine, EngineSettings
from deployments.pipeline.corrector_path import CorrectorPath
from deployments.pipeline.envelope import (
    DONE,
    Envelope,
    decode_draft,
    decode_draft_request,
    encode,
)
from deployments.pipeline.socket_link import SocketLink
from deployments.pipeline.socket_path import SocketPath
from deployments.pipeline.transport import HandlePath
from tests.unit.deployments.fakes import (
    FormulaPath,
    FormulaVerifier,
    expected_text,
    make_request,
)
from tests.unit.deployments.pipeline import lattices
from tests.unit.deployments.pipeline.endpoints import (
    HERE,
    KEY,
    Stage,
    is_second_best,
    never,
    second_best,
    serving,
)


@pytest.fixture(autouse=True)
async def nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr("deployments.pipeline.breaker._FIRST_PAUSE_S", 0.01)
    async with asyncio.timeout(20):
        yield


def link_to(stage: Any) -> SocketLink:
    return SocketLink(stage, KEY, HERE.node_id)


def path_to(stage: Any, link: SocketLink, fingerprint: str = "f1") -> SocketPath:
    return SocketPath(HandlePath(stage, fingerprint), link)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


class FormulaDrafter:
    """FormulaPath behind a socket."""

    def __init__(self) -> None:
        self.path = FormulaPath()
        self.stale: list[Draft] = []
        self.is_repeating = False

    async def answer(self, envelope: Envelope) -> Envelope:
        if envelope.kind == "release":
            await self.path.release(envelope.request_ids)
            return DONE
        draft = await self.path.draft(decode_draft_request(envelope))
        self.stale.append(draft)
        if self.is_repeating and len(self.stale) > 1:
            draft = mixed(self.stale[-2], draft)
        return encode(draft)


def mixed(old: Draft, new: Draft) -> Draft:
    """The new rows after rows of an earlier round and of another generation, all wrong."""
    other = tuple(replace(header, generation=header.generation + 1) for header in new.headers)
    width = max(old.token_ids.shape[1], new.token_ids.shape[1])
    tokens = [
        torch.nn.functional.pad(ids, (0, width - ids.shape[1]))
        for ids in (old.token_ids + 1, new.token_ids + 1, new.token_ids)
    ]
    return Draft((*old.headers, *other, *new.headers), torch.cat(tokens))


async def text_of(engine: Engine, name: str, max_tokens: int = 60) -> list[int]:
    request = make_request(name, max_tokens=max_tokens)
    return [token async for verdict in engine.generate(request) for token in verdict.token_ids]


async def test_drafts_and_releases_go_to_the_replica_that_is_connected() -> None:
    drafter = FormulaDrafter()
    async with serving(drafter.answer) as server:
        stage = Stage(server)
        link = link_to(stage)
        path = path_to(stage, link)
        assert await path.check() == {"drafter": "ready"}
        for _ in range(3):
            await path.check()
        assert stage.num_asked == 1
        with pytest.raises(CheckpointError, match="checkpoint f1"):
            await path_to(stage, link, "f2").check()
        draft = await path.draft(lattices.draft_request())
        assert draft.headers == lattices.HEADERS
        await path.release(["a", "b"])
        assert drafter.path.released == ["a", "b"]
        await link.close()
        with pytest.raises(ConnectionError, match="no replica is connected"):
            await path.draft(lattices.draft_request())


async def test_rows_of_another_round_or_generation_change_no_token() -> None:
    drafter = FormulaDrafter()
    drafter.is_repeating = True
    async with serving(drafter.answer) as server:
        stage = Stage(server)
        link = link_to(stage)
        path = path_to(stage, link)
        await path.check()
        engine = Engine(FormulaVerifier(2), path, EngineSettings())
        request = make_request("r", max_tokens=60)
        assert await text_of(engine, "r") == expected_text(request)
        assert engine.counts.accepted_tokens > 0
        assert len(drafter.stale) > 3
        await engine.close()
        await link.close()


@pytest.mark.parametrize("delay_s", [0.0, 0.02])
async def test_a_lost_drafter_costs_no_token_and_its_replacement_is_found(delay_s: float) -> None:
    drafter = FormulaDrafter()
    drafter.path.delay_s = delay_s
    async with serving(drafter.answer) as first:
        stage = Stage(first)
        link = link_to(stage)
        path = path_to(stage, link)
        await path.check()
        engine = Engine(FormulaVerifier(2), path, EngineSettings(draft_deadline_s=0.5))
        running = asyncio.create_task(text_of(engine, "r", 400))
        await until(lambda: engine.counts.drafted_rounds > 2)
        await first.close()
        assert await running == expected_text(make_request("r", max_tokens=400))
    assert engine.num_draft_failures >= 1
    async with serving(drafter.answer) as second:
        stage.server = second
        await until(lambda: engine.is_drafting)
        before = engine.counts.drafted_rounds
        assert await text_of(engine, "s") == expected_text(make_request("s", max_tokens=60))
        assert engine.counts.drafted_rounds > before
        assert stage.num_asked >= 2
        await engine.close()
        await link.close()


async def test_a_drafter_that_hangs_is_left_for_another_replica() -> None:
    async with serving(never) as stuck, serving(FormulaDrafter().answer) as good:
        stage = Stage(stuck)
        link = link_to(stage)
        path = path_to(stage, link)
        await path.check()
        engine = Engine(FormulaVerifier(1), path, EngineSettings(draft_deadline_s=0.1))
        assert await text_of(engine, "r") == expected_text(make_request("r", max_tokens=60))
        assert engine.num_draft_failures >= 1
        # It still answers pings, so it is kept; one that does not is left after two of them.
        await until(lambda: engine.is_drafting)
        assert stage.num_asked == 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("deployments.pipeline.socket_link.PING", encode(request_of_nobody()))
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(link.check(), 0.05)
        stage.server = good
        await link.check()
        assert stage.num_asked == 2
        assert (await path.draft(lattices.draft_request())).headers == lattices.HEADERS
        await engine.close()
        await link.close()


def request_of_nobody() -> DraftRequest:
    return DraftRequest((), torch.empty((0, 6)))


async def test_without_a_corrector_the_top_candidates_are_the_draft() -> None:
    lattice = lattices.lattice()
    answer: Callable[[Envelope], Awaitable[Envelope]] = second_best
    async with serving(answer) as server:
        stage = Stage(server)
        link = link_to(stage)
        path = CorrectorPath(stage, 0.2, link)  # type: ignore[arg-type]
        assert await path.check() == 4
        assert is_second_best(decode_draft(await path.correct(lattice)), lattice.candidate_ids)
    uncorrected = decode_draft(await path.correct(lattice))
    assert torch.equal(uncorrected.token_ids, lattice.candidate_ids[..., 0])
    assert uncorrected.gaps == lattice.gaps
    assert not path.is_available
    async with serving(answer) as replacement:
        stage.server = replacement
        await until(lambda: path.is_available)
        assert is_second_best(decode_draft(await path.correct(lattice)), lattice.candidate_ids)
        await link.close()
