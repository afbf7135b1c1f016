"""What the verifier needs of a target model, whatever its architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Where the packed tokens of one forward belong: one entry per row in each field.

    Row i brings counts[i] tokens for cache slot slots[i], at positions starts[i],
    starts[i] + 1, ... Everything the slot holds from starts[i] on is overwritten: setting
    `starts` is how a rejected draft is rolled back.
    """

    slots: tuple[int, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TargetOutput:
    """Final-normed hidden states, and the tapped block outputs side by side."""

    hidden: torch.Tensor  # [N, H]
    taps: torch.Tensor  # [N, num_taps * H]; num_taps 0 gives [N, 0]


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """The facts about a target that other parts need."""

    name: str
    architecture: str
    hidden_size: int
    num_layers: int
    vocab_size: int
    max_positions: int


class TargetTables(Protocol):
    """What drafters and correctors borrow of a target; a process may hold no more of it."""

    @property
    def spec(self) -> TargetSpec:
        """The facts about this target."""
        ...

    @property
    def embedding(self) -> torch.Tensor:
        """Input embedding table, [vocab_size, H]."""
        ...

    @property
    def lm_head(self) -> torch.Tensor:
        """Output projection, [vocab_size, H]; the same tensor as `embedding` when tied."""
        ...


class TargetModel(TargetTables, Protocol):
    """A causal LM with slot caches. Computes; holds no request state of its own."""

    def new_cache(self, num_slots: int, max_length: int) -> Any:
        """A KV cache for `num_slots` sequences of at most `max_length` positions."""
        ...

    def forward(
        self, token_ids: torch.Tensor, rows: PackedRows, cache: Any, tap_layer_ids: tuple[int, ...]
    ) -> TargetOutput:
        """Runs [N] packed tokens. A row's result does not depend on the other rows."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[M, H] final-normed states to [M, vocab_size] float32 logits."""
        ...
