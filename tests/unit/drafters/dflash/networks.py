"""Small random DFlash networks, and a target to fit them to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.drafter import DFlashDrafter, DrafterSettings
from dcoco_core.drafters.dflash.model import DFlashModel
from dcoco_core.drafters.dflash.scoring import CandidateHead
from dcoco_core.target.interface import TargetSpec
from dcoco_core.types import DraftRequest, RowHeader, SamplingParams

HIDDEN, VOCAB, TAPS = 32, 96, 2

CONFIG = DFlashConfig(
    hidden_size=HIDDEN,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=VOCAB,
    block_size=6,
    mask_token_id=3,
    target_layer_ids=(0, 2),
    num_target_layers=4,
    shift_label=True,
    rope_theta=100.0,
    max_positions=64,
)


class SpecTarget:
    """The parts of a TargetModel that a drafter looks at."""

    def __init__(self, seed: int = 0, **spec: Any) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.spec = replace(TargetSpec("tiny", "Tiny", HIDDEN, 4, VOCAB, 64), **spec)
        self.embedding = torch.randn((self.spec.vocab_size, HIDDEN), generator=generator)
        self.lm_head = torch.randn((self.spec.vocab_size, HIDDEN), generator=generator)


def random_model(config: DFlashConfig = CONFIG, seed: int = 1) -> DFlashModel:
    """A network with weights large enough that every input shows in its output."""
    generator = torch.Generator().manual_seed(seed)
    model = DFlashModel(config, HIDDEN).requires_grad_(False)
    for parameter in model.parameters():
        scale = 0.2 if parameter.ndim > 1 else 0.3
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        if parameter.ndim == 1:
            parameter.add_(1.0)
    return model


def random_drafter(config: DFlashConfig = CONFIG, **settings: Any) -> DFlashDrafter:
    """A float32 drafter on random weights."""
    default = DrafterSettings(5, max_positions=48, max_slots=3, dtype=torch.float32)
    chosen = replace(default, **settings)
    target = SpecTarget()
    head = CandidateHead(target.lm_head, None, chosen.num_candidates, config)
    return DFlashDrafter(random_model(config), target.embedding, head, chosen, "random")


def header(
    request_id: str = "a",
    *,
    start: int = 7,
    context_start: int = 0,
    num_draft_tokens: int = 4,
    anchor_id: int = 11,
    generation: int = 0,
) -> RowHeader:
    """A header whose context rows end before the anchor."""
    return RowHeader(
        request_id=request_id,
        generation=generation,
        start=start,
        anchor_id=anchor_id,
        num_draft_tokens=num_draft_tokens,
        sampling=SamplingParams(),
        corrector="none",
        context_start=context_start,
        num_context_rows=start - context_start,
    )


def context_rows(request_id: str = "a", length: int = 48) -> torch.Tensor:
    """[length, HIDDEN] context rows of a request, the same in every call."""
    generator = torch.Generator().manual_seed(sum(map(ord, request_id)))
    return torch.randn((length, HIDDEN), generator=generator)


def request(*headers: RowHeader) -> DraftRequest:
    """The headers with their context rows."""
    parts = [context_rows(h.request_id)[h.context_start : h.start] for h in headers]
    return DraftRequest(tuple(headers), torch.cat(parts) if parts else torch.empty(0, HIDDEN))


def with_alignment(shift_label: bool) -> DFlashConfig:
    """CONFIG in one of the two alignments."""
    return replace(CONFIG, shift_label=shift_label)
