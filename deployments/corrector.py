"""The Corrector deployment: lattices in, drafts out. Keeps no state."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from deployments import stages
from deployments.config import AppArgs
from deployments.pipeline.envelope import Envelope, decode_lattice, encode


class Corrector:
    """Every corrector of the arguments, behind one method."""

    def __init__(self, args: AppArgs) -> None:
        """Loads weights. Raises CheckpointError."""
        self._core = stages.make_correctors(args, stages.tables_of(args))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="corrector")

    async def correct(self, envelope: Envelope) -> Envelope:
        """A lattice to a draft."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: encode(self._core.correct(decode_lattice(envelope)))
        )

    async def num_candidates(self) -> int:
        """K, the most candidates per position that any corrector wants."""
        return self._core.num_candidates
