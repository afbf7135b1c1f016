"""The seams of the decoding loop: each is a few methods, each has a fake in tests/toys.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from dcoco_core.types import Draft, DraftRequest, Lattice, Request, Round


class Verifier(Protocol):
    """Runs the target and decides tokens; owns every request's committed text and KV cache."""

    @property
    def num_free_slots(self) -> int:
        """Requests that can still be opened."""
        ...

    def open(self, request: Request) -> None:
        """Reserves a slot; the next steps prefill it. Raises CapacityError or RequestError."""
        ...

    def step(self, draft: Draft) -> Round:
        """One target pass over the rows of `draft`, plain rows and waiting prompt chunks.

        Rows whose header does not match the request's generation and committed length are
        dropped. A row with no proposals (S = 0) is decoded plainly.
        """
        ...

    def close(self, request_id: str) -> None:
        """Frees the slot. Unknown ids are ignored, so closing twice is safe."""
        ...


class Drafter(Protocol):
    """Proposes the candidates of a whole block per row; keeps a context KV cache per request."""

    def draft(self, request: DraftRequest) -> Lattice:
        """Appends the context rows and drafts; rows it lacks context for come back as gaps."""
        ...

    def release(self, request_ids: Iterable[str]) -> None:
        """Frees the state of ended requests. Unknown ids are ignored."""
        ...


class Corrector(Protocol):
    """Turns a lattice into one token per position. Holds no request state."""

    @property
    def num_candidates(self) -> int:
        """K, the candidates per position it wants."""
        ...

    def correct(self, lattice: Lattice) -> Draft:
        """Chooses (or, for rejection rows, samples) left to right, from the anchor on."""
        ...


class ContextProjection(Protocol):
    """hidden_norm(fc(.)) of the drafter's checkpoint, applied at the verifier."""

    @property
    def target_layer_ids(self) -> tuple[int, ...]:
        """Target blocks whose outputs are tapped, in the order they are concatenated."""
        ...

    @property
    def fingerprint(self) -> str:
        """Identifies the drafter checkpoint the projection belongs to."""
        ...

    def __call__(self, taps: torch.Tensor) -> torch.Tensor:
        """[N, num_taps * hidden of the target] to context rows [N, hidden of the drafter]."""
        ...
