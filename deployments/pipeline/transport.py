"""How a draft request gets to the drafter and its draft comes back.

The engine sees a DraftPath; which one it is decides the topology and nothing else. A path may fail
or be slow in any way: pipeline/fallback.py turns that into plain decoding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from dcoco_core.errors import CheckpointError
from deployments.pipeline.envelope import decode_draft, encode

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

    from dcoco_core.protocols import Corrector, Drafter
    from dcoco_core.types import Draft, DraftRequest


class DraftPath(Protocol):
    """From the verifier through drafter and corrector, and back."""

    async def draft(self, request: DraftRequest) -> Draft:
        """The drafts of one envelope. Raises whatever went wrong on the way."""
        ...

    async def release(self, request_ids: Sequence[str]) -> None:
        """Frees the drafter's state of ended requests. Unknown ids are ignored."""
        ...

    async def check(self) -> dict[str, str]:
        """The states of the stages on the way. Raises while the path cannot draft."""
        ...


class InProcessPath:
    """Drafter and corrector in this process, on one worker thread of their own."""

    def __init__(self, drafter: Drafter, corrector: Corrector) -> None:
        self._drafter = drafter
        self._corrector = corrector
        # One thread: the drafter's state is not to be touched by two calls at once.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drafter")

    async def draft(self, request: DraftRequest) -> Draft:
        """See DraftPath."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: self._corrector.correct(self._drafter.draft(request))
        )

    async def release(self, request_ids: Sequence[str]) -> None:
        """See DraftPath. Runs after the drafts that were asked for before it."""
        await asyncio.get_running_loop().run_in_executor(
            self._thread, self._drafter.release, request_ids
        )

    async def check(self) -> dict[str, str]:
        """See DraftPath. Objects in this process are always there."""
        return {"drafter": "ready", "corrector": "ready"}


class HandlePath:
    """The Drafter deployment behind a Serve handle; it forwards to the corrector by itself.

    Calls go by value over gRPC: by reference, every tensor above 100 KB goes through the object
    store, which costs three times as much for an envelope of a few rows.
    """

    def __init__(self, drafter: DeploymentHandle[Any], fingerprint: str) -> None:
        """`fingerprint` is the checkpoint whose context rows the verifier computes."""
        self._drafter = drafter.options(_by_reference=False)
        self._fingerprint = fingerprint

    async def draft(self, request: DraftRequest) -> Draft:
        """See DraftPath."""
        return decode_draft(await self._drafter.draft.remote(encode(request)))

    async def release(self, request_ids: Sequence[str]) -> None:
        """See DraftPath."""
        await self._drafter.release.remote(tuple(request_ids))

    async def check(self) -> dict[str, str]:
        """See DraftPath. A drafter with another checkpoint cannot draft for this verifier.

        Raises:
            CheckpointError: it has one; the message names both.
        """
        found = await self._drafter.fingerprint.remote()
        if found != self._fingerprint:
            raise CheckpointError(
                f"the drafter runs checkpoint {found}, but the verifier computes context rows for "
                f"checkpoint {self._fingerprint}; restart the one that is behind"
            )
        return dict(await self._drafter.health.remote())
