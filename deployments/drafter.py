"""The Drafter deployment: context rows and headers in, corrected drafts out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from deployments.config import AppArgs
from deployments.pipeline.addresses import Address, ApplicationKey, Node
from deployments.pipeline.corrector_path import CorrectorPath
from deployments.pipeline.envelope import DONE, Envelope, decode_draft_request, encode
from deployments.pipeline.socket_link import SocketLink
from deployments.pipeline.socket_server import SocketServer
from deployments.stages import stages_of

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

T = TypeVar("T")


class Drafter:
    """Owns the drafter's caches; corrects in its own process or forwards to the Corrector."""

    # Serve awaits a constructor, which the type system has no word for.
    async def __init__(  # type: ignore[misc]
        self,
        args: AppArgs,
        corrector: DeploymentHandle[Any] | None = None,
        key: ApplicationKey | None = None,
    ) -> None:
        """Loads weights, for as many candidates as the correctors want. Raises CheckpointError.

        With a key, envelopes travel by sockets.
        """
        self._lease_timeout_s = args.lease_timeout_s
        self._last_round_s: dict[str, float] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drafter")
        stages = await asyncio.to_thread(stages_of, args)
        self._remote = self._local = None
        if corrector is not None:
            link = None if key is None else SocketLink(corrector, key, Node.this().node_id)
            self._remote = CorrectorPath(corrector, args.draft_deadline_s / 2, link)
            num_candidates = await self._remote.check()
        else:
            self._local = await asyncio.to_thread(stages.correctors)
            num_candidates = self._local.num_candidates
        self._loaded = await asyncio.to_thread(stages.drafter, num_candidates)
        self._core = self._loaded.core
        self._server = None if key is None else SocketServer(self._answer, key, Node.this())

    async def socket_address(self, node_id: str) -> Address:
        """Where processes of that node find this replica. Only with transport 'socket'."""
        assert self._server is not None
        return self._server.address(node_id)

    async def draft(self, envelope: Envelope) -> Envelope:
        """A draft request to a draft."""
        request = decode_draft_request(envelope)
        now = monotonic()
        self._last_round_s.update({header.request_id: now for header in request.headers})
        if self._remote is not None:
            return await self._remote.correct(await self._run(lambda: self._core.draft(request)))
        local = self._local
        assert local is not None
        return await self._run(lambda: encode(local.correct(self._core.draft(request))))

    async def release(self, request_ids: Sequence[str]) -> None:
        """Frees the state of ended requests, after the drafts asked for before."""
        for request_id in request_ids:
            self._last_round_s.pop(request_id, None)
        await self._run(lambda: self._core.release(request_ids))

    async def fingerprint(self) -> str:
        """Identifies the checkpoint that drafts here."""
        return self._loaded.fingerprint

    async def health(self) -> dict[str, str]:
        """The states of this stage and the next."""
        corrects = self._remote is None or self._remote.is_available
        return {"drafter": "ready", "corrector": "ready" if corrects else "unavailable"}

    async def check_health(self) -> None:
        """Frees what no verifier has asked for in a long time: its release was lost."""
        oldest = monotonic() - self._lease_timeout_s
        await self.release([name for name, last in self._last_round_s.items() if last < oldest])

    async def _answer(self, envelope: Envelope) -> Envelope:
        if envelope.kind == "release":
            await self.release(envelope.request_ids)
            return DONE
        return await self.draft(envelope)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
