"""The Verifier deployment: the target, and the engine that batches requests over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dcoco_core.errors import CapacityError, RequestError
from dcoco_core.types import Request, Verdict
from deployments.announce import announce
from deployments.config import AppArgs
from deployments.cpu import cpu_use
from deployments.engine import Engine, EngineSettings
from deployments.metrics import MetricsExport
from deployments.openai_api.backend import Health, Refusal
from deployments.pipeline.addresses import ApplicationKey, Node
from deployments.pipeline.socket_link import SocketLink
from deployments.pipeline.socket_path import SocketPath
from deployments.pipeline.transport import DraftPath, HandlePath, InProcessPath
from deployments.stages import stages_of
from deployments.warm_up import warm_up

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from deployments.loaded import Stages

logger = logging.getLogger("ray.serve")

_DRAFTER_START_S = 120.0
_CHECK_S = 1.0


class Verifier:
    """One streaming call per request: the lease that Serve counts, drains and cancels."""

    # Serve awaits a constructor, which the type system has no word for.
    async def __init__(  # type: ignore[misc]
        self,
        args: AppArgs,
        drafter: DeploymentHandle[Any] | None = None,
        key: ApplicationKey | None = None,
    ) -> None:
        """Loads weights and runs a round through every stage. Raises CheckpointError.

        With a key, envelopes travel by sockets.
        """
        stages = await asyncio.to_thread(stages_of, args)
        self._loaded = loaded = await asyncio.to_thread(stages.verifier)
        self._path: DraftPath | None = None
        if drafter is not None and loaded.fingerprint is not None:
            self._path = await _connect(drafter, loaded.fingerprint, key)
        elif loaded.fingerprint is not None:
            self._path = await asyncio.to_thread(_in_process, stages)
        await warm_up(loaded.core, self._path, args)
        if loaded.cache_bytes is not None:
            logger.info(
                "caches of %d slots x %d tokens: %.0f MiB when full",
                *(args.max_slots, args.max_model_len, loaded.cache_bytes / 2**20),
            )
        settings = EngineSettings(args.max_waiting, args.draft_deadline_s, args.lease_timeout_s)
        self._engine = Engine(loaded.core, self._path, settings)
        self._metrics = MetricsExport("dcoco")
        self._announcement = asyncio.create_task(announce(args))

    async def generate(self, request: Request) -> AsyncGenerator[Verdict | Refusal, None]:
        """See Engine.generate. A refusal comes as an item: Serve logs what is raised at length."""
        try:
            async with aclosing(self._engine.generate(request)) as verdicts:
                async for verdict in verdicts:
                    yield verdict
        except (CapacityError, RequestError) as refusal:
            yield refusal

    async def health(self) -> Health:
        """The states of all stages. Requests are answered without drafts, too."""
        self._engine.check_health()
        states = {"verifier": "ready"}
        if self._path is not None:
            states |= {"drafter": "unavailable", "corrector": "unavailable"}
            try:
                if self._engine.is_drafting:
                    states |= await asyncio.wait_for(self._path.check(), _CHECK_S)
            except Exception as error:
                logger.debug("the drafter does not answer: %r", error)
        return Health(True, states, cpu=cpu_use(), device=self._loaded.device_use())

    async def counts(self) -> dict[str, int]:
        """Totals since the start and present numbers."""
        return self._totals() | self._present()

    async def check_health(self) -> None:
        """Raises EngineError when the replica should be replaced."""
        self._metrics.publish(self._totals(), self._present())
        self._engine.check_health()

    def _totals(self) -> dict[str, int]:
        return asdict(self._engine.counts) | {"draft_failures": self._engine.num_draft_failures}

    def _present(self) -> dict[str, int]:
        engine = self._engine
        return {
            "running_requests": engine.num_running,
            "waiting_requests": engine.num_waiting,
            "slots": engine.num_slots,
        }


async def _connect(
    drafter: DeploymentHandle[Any], fingerprint: str, key: ApplicationKey | None
) -> DraftPath:
    """Waits for the drafter. Raises CheckpointError when it runs another checkpoint."""
    by_handle = HandlePath(drafter, fingerprint)
    path: DraftPath = by_handle
    if key is not None:
        path = SocketPath(by_handle, SocketLink(drafter, key, Node.this().node_id))
    try:
        await asyncio.wait_for(path.check(), _DRAFTER_START_S)
    except TimeoutError:
        logger.warning("no drafter after %g s, decoding plainly until it comes", _DRAFTER_START_S)
    return path


def _in_process(stages: Stages) -> InProcessPath:
    corrector = stages.correctors()
    return InProcessPath(stages.drafter(corrector.num_candidates).core, corrector)
