"""The candidate selector of DFlash2 (inco.ai/blog/dflash2), without its convolutions.

Names of tensors and sizes are those of the published checkpoints (vLLM #52816). Published
codebooks have a row per token of the target; a drafter that proposes a reduced vocabulary can do
with a row per token of that one, and one more that all other tokens share (an anchor can be any).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from dcoco_core.correctors.draft_vocabulary import draft_rows, offsets


@dataclass(frozen=True, slots=True)
class SelectorConfig:
    """Sizes of a selector. `draft_vocab_size` below `vocab_size` is the reduced form."""

    hidden_size: int
    vocab_size: int
    draft_vocab_size: int
    selector_rank: int = 64
    selector_top_k: int = 16

    @property
    def is_reduced(self) -> bool:
        """Whether the codebooks are indexed by the draft vocabulary and a shared row."""
        return self.draft_vocab_size < self.vocab_size

    @property
    def num_codes(self) -> int:
        """Rows of a codebook."""
        return self.draft_vocab_size + 1 if self.is_reduced else self.vocab_size


class _Codebooks(nn.Module):
    """The published tensors, in their published places."""

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        shape = (config.num_codes, config.selector_rank)
        self.predecessor_codebook = nn.Parameter(torch.randn(shape))
        # An untrained selector returns the draft as it is.
        self.successor_codebook = nn.Parameter(torch.zeros(shape))
        self.hidden_projection = nn.Linear(config.hidden_size, config.selector_rank, bias=False)


class CandidateSelector(nn.Module):
    """score_t(a -> b) = base logit of b + < A[a] * (W h_t), B[b] >.

    Args:
        config: sizes.
        vocab_ids: [draft_vocab_size] ascending target ids; None for all, or when weights with
            their own map are loaded next.
        dropout: on the gated predecessor, while training only.
    """

    d2t: torch.Tensor

    def __init__(
        self, config: SelectorConfig, vocab_ids: torch.Tensor | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.config = config
        self.candidate_selector = _Codebooks(config)
        self.dropout = nn.Dropout(dropout)
        if config.is_reduced:
            self.register_buffer("d2t", offsets(config.draft_vocab_size, vocab_ids))

    def code_rows(self) -> torch.Tensor:
        """[V] codebook row of every token of the target."""
        vocab_size = self.config.vocab_size
        if self.config.is_reduced:
            return draft_rows(self.d2t, vocab_size)
        return torch.arange(vocab_size)

    def gated(self, left_rows: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """[..., r] predecessors of codebook rows [...] as seen from states [..., H]."""
        books = self.candidate_selector
        weight = books.hidden_projection.weight
        gate = books.hidden_projection(hidden.to(weight.dtype))
        gated: torch.Tensor = self.dropout(books.predecessor_codebook[left_rows] * gate)
        return gated

    def successors(self, code_rows: torch.Tensor) -> torch.Tensor:
        """[..., r] of codebook rows [...]."""
        return self.candidate_selector.successor_codebook[code_rows]
