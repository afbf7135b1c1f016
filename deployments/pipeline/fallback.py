"""A draft path that cannot fail: what goes wrong costs speed, never answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dcoco_core.drafts import merge_drafts, plain_draft
from deployments.pipeline.breaker import Breaker

if TYPE_CHECKING:
    from dcoco_core.types import Draft, DraftRequest, RowHeader
    from deployments.pipeline.transport import DraftPath


class FallbackPath:
    """Wraps a DraftPath: rows that it cannot draft in time come back without proposals."""

    def __init__(self, path: DraftPath, deadline_s: float) -> None:
        self._path = path
        self._breaker = Breaker("drafter", path.check, deadline_s)
        self._unreleased: set[str] = set()

    @property
    def is_available(self) -> bool:
        """Whether the next draft request will be sent at all."""
        return self._breaker.is_available

    @property
    def num_failures(self) -> int:
        """Calls that failed or were late."""
        return self._breaker.num_failures

    async def draft(self, request: DraftRequest) -> Draft:
        """The path's drafts, or the same rows without proposals."""
        draft = await self._breaker.call(lambda: self._draft(request))
        return undrafted(request.headers) if draft is None else draft

    async def _draft(self, request: DraftRequest) -> Draft:
        return complete(await self._path.draft(request), request.headers)

    async def release(self, request_ids: Sequence[str]) -> None:
        """Passes on, together with what could not be told before; what fails is kept."""
        released = sorted(self._unreleased.union(request_ids))
        self._unreleased = set(released)
        if not released:
            return
        if await self._breaker.call(lambda: self._release(released)) is not None:
            self._unreleased.difference_update(released)

    async def _release(self, request_ids: Sequence[str]) -> bool:
        await self._path.release(request_ids)
        return True

    def close(self) -> None:
        """Stops what runs in the background."""
        self._breaker.close()


def complete(draft: Draft, headers: Sequence[RowHeader]) -> Draft:
    """The draft with a plain row for every header that came back neither drafted nor as a gap.

    Without it such a row would wait for its draft for ever.

    Raises:
        ValueError: the draft has another number of rows than its headers say.
    """
    if draft.token_ids.shape[0] != len(draft.headers):
        raise ValueError(f"{len(draft.headers)} headers, but {draft.token_ids.shape[0]} drafts")
    returned = {header.request_id for header in draft.headers}
    returned |= {gap.request_id for gap in draft.gaps}
    missing = [header for header in headers if header.request_id not in returned]
    return merge_drafts([draft, undrafted(missing)]) if missing else draft


def undrafted(headers: Sequence[RowHeader]) -> Draft:
    """The rows as plain ones; their headers promise no proposals, so they can be merged."""
    return plain_draft([replace(header, num_draft_tokens=0) for header in headers])
