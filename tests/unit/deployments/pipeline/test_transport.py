"""The ways from the verifier to the drafter, and to the corrector behind it."""

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from dcoco_core.correctors.none import NoneCorrector
from dcoco_core.errors import CheckpointError
from dcoco_core.types import Draft, DraftRequest, Lattice
from deployments.pipeline.corrector_path import CorrectorPath
from deployments.pipeline.envelope import Envelope, decode_draft, decode_lattice, encode
from deployments.pipeline.transport import HandlePath, InProcessPath
from tests.unit.deployments.pipeline import lattices


class RecordingDrafter:
    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.calls: list[str] = []

    def draft(self, request: DraftRequest) -> Lattice:
        self.threads.add(threading.current_thread().name)
        self.calls.append("draft")
        assert torch.equal(request.context, lattices.draft_request().context)
        return lattices.lattice()

    def release(self, request_ids: Iterable[str]) -> None:
        self.threads.add(threading.current_thread().name)
        self.calls.extend(request_ids)


class FakeHandle:
    """A DeploymentHandle whose replica is an object; methods are called by value."""

    def __init__(self, replica: Any, options: dict[str, Any] | None = None) -> None:
        self.replica = replica
        self.given_options = options if options is not None else {}

    def options(self, **options: Any) -> "FakeHandle":
        return FakeHandle(self.replica, {**self.given_options, **options})

    def __getattr__(self, name: str) -> Any:
        assert self.given_options == {"_by_reference": False}
        method = getattr(self.replica, name)
        return type("Method", (), {"remote": staticmethod(method)})


class DrafterReplica:
    def __init__(self) -> None:
        self.requests: list[Envelope] = []
        self.released: tuple[str, ...] = ()

    async def draft(self, envelope: Envelope) -> Envelope:
        self.requests.append(envelope)
        return encode(lattices.draft(is_sampled=True))

    async def release(self, request_ids: tuple[str, ...]) -> None:
        self.released = request_ids

    async def fingerprint(self) -> str:
        return "f1"

    async def health(self) -> dict[str, str]:
        return {"drafter": "ready", "corrector": "unavailable"}


async def test_in_process_stages_share_one_thread_that_is_not_the_loops() -> None:
    drafter = RecordingDrafter()
    path = InProcessPath(drafter, NoneCorrector())
    first, second = await asyncio.gather(
        path.draft(lattices.draft_request()), path.draft(lattices.draft_request())
    )
    await path.release(["a"])
    assert drafter.calls == ["draft", "draft", "a"]
    assert len(drafter.threads) == 1
    assert threading.current_thread().name not in drafter.threads
    assert torch.equal(first.token_ids, lattices.lattice().candidate_ids[..., 0])
    assert first.gaps == second.gaps == lattices.lattice().gaps
    assert set((await path.check()).values()) == {"ready"}


async def test_by_handle_one_message_carries_all_rows() -> None:
    replica = DrafterReplica()
    path = HandlePath(FakeHandle(replica), "f1")  # type: ignore[arg-type]
    draft = await path.draft(lattices.draft_request())
    assert isinstance(draft, Draft)
    assert torch.equal(draft.token_ids, lattices.draft(is_sampled=True).token_ids)
    assert [envelope.headers for envelope in replica.requests] == [lattices.HEADERS]
    await path.release(["a", "b"])
    assert replica.released == ("a", "b")
    assert await path.check() == {"drafter": "ready", "corrector": "unavailable"}


async def test_a_drafter_with_another_checkpoint_is_no_path() -> None:
    path = HandlePath(FakeHandle(DrafterReplica()), "f2")  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"checkpoint f1, but .* for checkpoint f2"):
        await path.check()


class CorrectorReplica:
    def __init__(self) -> None:
        self.failure: Exception | None = None

    async def correct(self, envelope: Envelope) -> Envelope:
        if self.failure is not None:
            raise self.failure
        lattice = decode_lattice(envelope)
        return encode(Draft(lattice.headers, lattice.candidate_ids[..., 1]))

    async def num_candidates(self) -> int:
        if self.failure is not None:
            raise self.failure
        return 4


async def test_without_a_corrector_the_top_candidates_are_the_draft() -> None:
    replica = CorrectorReplica()
    path = CorrectorPath(FakeHandle(replica), deadline_s=1.0)  # type: ignore[arg-type]
    lattice = lattices.lattice()
    corrected = decode_draft(await path.correct(lattice))
    assert torch.equal(corrected.token_ids, lattice.candidate_ids[..., 1])
    replica.failure = RuntimeError("gone")
    uncorrected = decode_draft(await path.correct(lattice))
    assert torch.equal(uncorrected.token_ids, lattice.candidate_ids[..., 0])
    assert uncorrected.gaps == lattice.gaps
    assert path.is_available is False
    replica.failure = None
    async with asyncio.timeout(2):
        while_unavailable = iter(lambda: path.is_available, True)
        for _ in while_unavailable:
            await asyncio.sleep(0.01)
    again = decode_draft(await path.correct(lattice))
    assert torch.equal(again.token_ids, lattice.candidate_ids[..., 1])
