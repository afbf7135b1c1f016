"""A TargetModel around transformers' AutoModelForCausalLM, for architectures we have no forward of.

Rows run one after another, so no row can influence another. Slower than the fused forward and
meant for breadth: any decoder whose cache holds keys and values of every position works.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, DynamicCache

from dcoco_core.errors import CheckpointError
from dcoco_core.target.interface import PackedRows, TargetOutput, TargetSpec

CHECK_TOLERANCE = 1e-3  # relative to the largest logit


class AdapterCache:
    """One transformers cache per slot, empty until the slot is used.

    Every layer keeps all positions, sliding-window layers too (the mask narrows what they see): a
    cache that had dropped old positions could not be rolled back.
    """

    def __init__(self, num_slots: int, max_length: int) -> None:
        self.max_length = max_length
        self._caches = [DynamicCache() for _ in range(num_slots)]

    def at(self, slot: int, start: int, count: int) -> DynamicCache:
        """The slot's cache, rolled back to hold exactly `start` positions.

        Raises:
            ValueError: there is no such slot, it holds fewer, or `count` more do not fit.
        """
        if not 0 <= slot < len(self._caches) or count < 1 or start + count > self.max_length:
            raise ValueError(
                f"{count} tokens from position {start} of slot {slot} are outside the cache: "
                f"{len(self._caches)} slots of {self.max_length} positions"
            )
        if start == 0:
            self._caches[slot] = DynamicCache()
        held = int(self._caches[slot].get_seq_length())
        if held < start:
            raise ValueError(f"slot {slot} holds {held} positions, tokens start at {start}")
        if held > start:
            self._caches[slot].crop(start - held)
        return self._caches[slot]


class AdaptedTarget:
    """Any causal LM of transformers as a TargetModel; its cache is an AdapterCache."""

    def __init__(self, model: Any, *, name: str) -> None:
        """Wraps a loaded model.

        Raises:
            CheckpointError: the model cannot be rolled back, or its logits cannot be computed from
                its last hidden states.
        """
        self._decoder = model.get_decoder()
        self._head = model.get_output_embeddings()
        config = model.config.get_text_config(decoder=True)
        self._softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self._blocks = _find_blocks(self._decoder, config.num_hidden_layers, name)
        self._spec = TargetSpec(
            name=name,
            architecture=type(model).__name__,
            hidden_size=config.hidden_size,
            num_layers=config.num_hidden_layers,
            vocab_size=config.vocab_size,
            max_positions=config.max_position_embeddings,
        )
        self._check(model)

    @property
    def spec(self) -> TargetSpec:
        """The facts about this target."""
        return self._spec

    @property
    def embedding(self) -> torch.Tensor:
        """Input embedding table, [vocab_size, H]."""
        table: torch.Tensor = self._decoder.get_input_embeddings().weight
        return table.detach()

    @property
    def lm_head(self) -> torch.Tensor:
        """Output projection, [vocab_size, H]."""
        weight: torch.Tensor = self._head.weight
        return weight.detach()

    def new_cache(self, num_slots: int, max_length: int) -> AdapterCache:
        """Empty caches for `num_slots` sequences."""
        return AdapterCache(num_slots, max_length)

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        rows: PackedRows,
        cache: AdapterCache,
        tap_layer_ids: tuple[int, ...],
    ) -> TargetOutput:
        """Runs the rows one by one; taps are block outputs before the final norm."""
        if sum(rows.counts) != token_ids.shape[0] or not rows.counts:
            raise ValueError(f"{token_ids.shape[0]} tokens for rows of {list(rows.counts)}")
        tapped: dict[int, torch.Tensor] = {}
        hooks = [self._tap(number, tapped) for number in set(tap_layer_ids)]
        hidden, taps = [], []
        try:
            placed = zip(rows.slots, rows.starts, rows.counts, strict=True)
            ids = token_ids.to(self.embedding.device).split(rows.counts)
            for row_ids, (slot, start, count) in zip(ids, placed, strict=True):
                output = self._decoder(
                    input_ids=row_ids.unsqueeze(0),
                    position_ids=torch.arange(start, start + count).to(row_ids).unsqueeze(0),
                    cache=cache.at(slot, start, count),
                    use_cache=True,
                )
                row_hidden = output.last_hidden_state[0]
                hidden.append(row_hidden)
                row_taps = [tapped[number] for number in tap_layer_ids]
                taps.append(torch.cat((row_hidden[:, :0], *row_taps), dim=-1))
        finally:
            for hook in hooks:
                hook.remove()
        return TargetOutput(hidden=torch.cat(hidden), taps=torch.cat(taps))

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[M, H] final-normed states to [M, vocab_size] float32 logits."""
        logits: torch.Tensor = self._head(hidden)
        if self._softcap is not None:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits.float()

    def _tap(
        self, number: int, tapped: dict[int, torch.Tensor]
    ) -> torch.utils.hooks.RemovableHandle:
        def keep(_block: nn.Module, _inputs: object, output: Any) -> None:
            states: torch.Tensor = output[0] if isinstance(output, tuple) else output
            tapped[number] = states[0]

        return self._blocks[number].register_forward_hook(keep)

    @torch.inference_mode()
    def _check(self, model: Any) -> None:
        """Compares a short rolled-back run with the whole model."""
        ids = torch.arange(6).remainder(self._spec.vocab_size).to(self.embedding.device)
        expected = model(input_ids=ids.unsqueeze(0), use_cache=False).logits[0].float()
        cache = self.new_cache(1, 8)
        self.forward(ids.flip(0), PackedRows((0,), (0,), (6,)), cache, ())
        self.forward(ids[:4], PackedRows((0,), (0,), (4,)), cache, ())
        self.forward(ids[:2], PackedRows((0,), (4,), (2,)), cache, ())
        output = self.forward(ids[3:], PackedRows((0,), (3,), (3,)), cache, ())
        error = (self.logits(output.hidden) - expected[3:]).abs().max()
        if not error <= CHECK_TOLERANCE * (1.0 + expected.abs().max()):
            raise CheckpointError(
                f"{self._spec.name}: {self._spec.architecture} cannot be a target. Its logits are "
                f"off by {float(error):.2g} when they are computed from its hidden states after a "
                "rollback: it keeps other state than keys and values, or transforms its logits."
            )


def _find_blocks(decoder: nn.Module, num_layers: int, name: str) -> nn.ModuleList:
    for module in decoder.children():
        if isinstance(module, nn.ModuleList) and len(module) == num_layers:
            return module
    raise CheckpointError(f"{name}: {type(decoder).__name__} has no list of {num_layers} blocks")


def load_adapted(folder: Path, *, dtype: torch.dtype, device: str) -> AdaptedTarget:
    """Loads a folder through transformers.

    Raises:
        CheckpointError: transformers does not know the architecture or cannot load the weights.
    """
    try:
        model: nn.Module = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True
        )
        model.to(torch.device(device))
        return AdaptedTarget(model, name=folder.name)
    except CheckpointError:
        raise
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"{folder} cannot be a target: {error}") from error
