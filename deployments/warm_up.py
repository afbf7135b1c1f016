"""A round through every stage before the first request, so that it pays for no first call."""

from __future__ import annotations

import asyncio
import logging

from dcoco_core.protocols import Verifier
from dcoco_core.types import Limits, Request, Speculation
from deployments.config import AppArgs
from deployments.engine import Engine, EngineSettings
from deployments.pipeline.transport import DraftPath

logger = logging.getLogger("ray.serve")

_NUM_PROMPT_TOKENS = 24
_NUM_TOKENS = 8
_DEADLINE_S = 60.0


async def warm_up(verifier: Verifier, path: DraftPath | None, args: AppArgs) -> None:
    """Decodes a few tokens plainly and with every corrector, with a patient deadline."""
    engine = Engine(verifier, path, EngineSettings(draft_deadline_s=_DEADLINE_S))
    num_draft_tokens = args.num_draft_tokens or 0
    names = ["none"] if path is None else list(args.correctors)

    def request_id(name: str) -> str:
        return f"warm-up {name}"

    async def decode(name: str) -> None:
        request = Request(
            request_id(name),
            prompt_ids=tuple(range(min(_NUM_PROMPT_TOKENS, args.max_model_len // 2))),
            limits=Limits(_NUM_TOKENS),
            speculation=Speculation(num_draft_tokens, name),
        )
        async for _ in engine.generate(request):
            pass

    await asyncio.gather(*map(decode, names))
    if engine.num_draft_failures:
        logger.warning("no drafts during warm-up; requests are decoded plainly until they come")
    await engine.close()
    if path is not None and not engine.num_draft_failures:
        await path.release([request_id(name) for name in names])
