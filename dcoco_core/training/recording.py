"""A target and a verifier that keep what they compute, for text recorded while it is generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dcoco_core.kv_cache import lazy_zeros
from dcoco_core.target.attention import PackedIndex
from dcoco_core.target.interface import PackedRows, TargetModel, TargetOutput, TargetSpec
from dcoco_core.target.verifier import TargetVerifier, VerifierSettings


class RecordingTarget:
    """A TargetModel that also keeps taps and final-normed states, by slot and position.

    Args:
        target: what computes.
        tap_layer_ids: blocks whose outputs are kept; the caller itself may ask for none.
    """

    def __init__(self, target: TargetModel, tap_layer_ids: tuple[int, ...]) -> None:
        self._target = target
        self._tap_layer_ids = tap_layer_ids
        self._states = torch.empty(0)

    @property
    def spec(self) -> TargetSpec:
        """The facts about the target."""
        return self._target.spec

    @property
    def embedding(self) -> torch.Tensor:
        """See TargetTables."""
        return self._target.embedding

    @property
    def lm_head(self) -> torch.Tensor:
        """See TargetTables."""
        return self._target.lm_head

    def new_cache(self, num_slots: int, max_length: int) -> Any:
        """The target's cache; room for the states is made beside it."""
        width = (len(self._tap_layer_ids) + 1) * self.spec.hidden_size
        sizes = (num_slots, max_length, width)
        self._states = lazy_zeros(sizes, torch.bfloat16, self._target.embedding.device)
        return self._target.new_cache(num_slots, max_length)

    def forward(
        self, token_ids: torch.Tensor, rows: PackedRows, cache: Any, tap_layer_ids: tuple[int, ...]
    ) -> TargetOutput:
        """See TargetModel.

        Raises:
            ValueError: the caller wants taps of its own.
        """
        if tap_layer_ids:
            raise ValueError("a recording target has no taps for its caller")
        output = self._target.forward(token_ids, rows, cache, self._tap_layer_ids)
        index = PackedIndex(rows, output.hidden.device)
        states = torch.cat([output.taps, output.hidden], dim=-1)
        self._states[index.slots, index.positions] = states.to(self._states.dtype)
        return TargetOutput(hidden=output.hidden, taps=output.taps[:, :0])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See TargetModel."""
        return self._target.logits(hidden)

    def states(self, slot: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of a slot's first taps [length, n * H] and final-normed states [length, H]."""
        kept = self._states[slot, :length].clone()
        taps = len(self._tap_layer_ids) * self.spec.hidden_size
        return kept[:, :taps], kept[:, taps:]


@dataclass(frozen=True, slots=True)
class RecordedText:
    """A request's tokens, and the target's states at all of them but the last."""

    token_ids: tuple[int, ...]  # T
    taps: torch.Tensor  # [T - 1, n * H]
    hidden: torch.Tensor  # [T - 1, H]


class RecordingVerifier(TargetVerifier):
    """Decodes plainly and keeps the text and states of ended requests until they are taken."""

    def __init__(self, target: RecordingTarget, settings: VerifierSettings) -> None:
        super().__init__(target, settings)
        self._recording = target
        self._ended: dict[str, RecordedText] = {}

    def close(self, request_id: str) -> None:
        """Frees the slot; what it held is kept for `take`."""
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            taps, hidden = self._recording.states(sequence.slot, len(sequence.tokens) - 1)
            self._ended[request_id] = RecordedText(tuple(sequence.tokens), taps, hidden)
        super().close(request_id)

    def take(self, request_id: str) -> RecordedText:
        """The text of an ended request, once."""
        return self._ended.pop(request_id)
