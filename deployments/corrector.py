"""The Corrector deployment: lattices in, drafts out. Keeps no state."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from deployments.config import AppArgs
from deployments.pipeline.addresses import Address, ApplicationKey, Node
from deployments.pipeline.envelope import Envelope, decode_lattice, encode
from deployments.pipeline.socket_server import SocketServer
from deployments.stages import stages_of


class Corrector:
    """Every corrector of the arguments, behind one method."""

    # Serve awaits a constructor, which the type system has no word for.
    async def __init__(  # type: ignore[misc]
        self, args: AppArgs, key: ApplicationKey | None = None
    ) -> None:
        """Loads weights. With a key, lattices come by sockets. Raises CheckpointError."""
        self._core = await asyncio.to_thread(lambda: stages_of(args).correctors())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="corrector")
        self._server = None if key is None else SocketServer(self.correct, key, Node.this())

    async def correct(self, envelope: Envelope) -> Envelope:
        """A lattice to a draft."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: encode(self._core.correct(decode_lattice(envelope)))
        )

    async def num_candidates(self) -> int:
        """K, the most candidates per position that any corrector wants."""
        return self._core.num_candidates

    async def socket_address(self, node_id: str) -> Address:
        """Where processes of that node find this replica. Only with transport 'socket'."""
        assert self._server is not None
        return self._server.address(node_id)
