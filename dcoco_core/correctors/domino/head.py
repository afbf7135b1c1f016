"""The head of Domino (arXiv 2605.29707).

Names of tensors, config keys and the gate order are those of the published checkpoints. Sizes are
in proportion to a small target: 256 and 64 at hidden size 576, where 4096 has 1024 and 256. The
last matrix has a row per token that the drafter proposes, as its own vocabulary has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from dcoco_core.correctors.draft_vocabulary import offsets


@dataclass(frozen=True, slots=True)
class DominoConfig:
    """Sizes of a head, in the published keys where there is one.

    The first `pure_draft_prefix_len` positions keep the drafter's scores. `shift_label` is the
    drafter's alignment; the head reads the prefix before a position under both.
    """

    hidden_size: int
    vocab_size: int
    draft_vocab_size: int
    emb_dim: int = 64
    gru_hidden_dim: int = 256
    pure_draft_prefix_len: int = 1
    shift_label: bool = True
    projector_type: Literal["domino"] = "domino"
    num_candidates: int = 16

    @property
    def is_reduced(self) -> bool:
        """Whether the drafter proposes only a part of the target's vocabulary."""
        return self.draft_vocab_size < self.vocab_size


class DominoHead(nn.Module):
    """score of b = base logit + E2[b] . SiLU(E0 [h_k ; g_k]), g_k the GRU's state of the prefix.

    Args:
        config: sizes.
        vocab_ids: [draft_vocab_size] ascending target ids; None for all, or when weights with
            their own map are loaded next.
        dropout: before the last matrix, while training only.
    """

    d2t: torch.Tensor

    def __init__(
        self, config: DominoConfig, vocab_ids: torch.Tensor | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.config = config
        self.prefix_gru = nn.GRU(
            config.hidden_size, config.gru_hidden_dim, bias=False, batch_first=True
        )
        output = nn.Linear(config.emb_dim, config.draft_vocab_size, bias=False)
        # An untrained head returns the draft as it is.
        nn.init.zeros_(output.weight)
        num_inputs = config.hidden_size + config.gru_hidden_dim
        self.embed_proj = nn.Sequential(
            nn.Linear(num_inputs, config.emb_dim, bias=False), nn.SiLU(), output
        )
        self.dropout = nn.Dropout(dropout)
        if config.is_reduced:
            self.register_buffer("d2t", offsets(config.draft_vocab_size, vocab_ids))

    @property
    def output_rows(self) -> torch.Tensor:
        """[draft vocabulary + 1, E]: the last matrix and zeros, for tokens never proposed."""
        return F.pad(self.embed_proj.get_parameter("2.weight"), (0, 0, 0, 1))

    @property
    def recurrent_weight(self) -> torch.Tensor:
        """[3 G, G] of the GRU; device and dtype of the head are this matrix's."""
        return self.prefix_gru.get_parameter("weight_hh_l0")

    def token_inputs(self, embedding: torch.Tensor) -> torch.Tensor:
        """The GRU's products of tokens: [..., H] embedding rows to [..., 3 G]."""
        weight = self.prefix_gru.get_parameter("weight_ih_l0")
        return F.linear(embedding.to(weight.dtype), weight)

    def next_state(self, token_input: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """[R, G] the state after a token whose token_inputs are [R, 3 G]; one step of the GRU."""
        recurrent = F.linear(state, self.recurrent_weight)
        reset, update, new = token_input.chunk(3, dim=-1)
        reset_state, update_state, new_state = recurrent.chunk(3, dim=-1)
        new = torch.tanh(new + torch.sigmoid(reset + reset_state) * new_state)
        return torch.lerp(new, state, torch.sigmoid(update + update_state))

    def hidden_inputs(self, hidden: torch.Tensor) -> torch.Tensor:
        """The first matrix's share of drafter states: [..., H] to [..., E]."""
        weight = self.embed_proj.get_parameter("0.weight")
        return F.linear(hidden.to(weight.dtype), weight[:, : self.config.hidden_size])

    def latents(self, hidden_input: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """[..., E] what the output rows are multiplied with, from hidden_inputs and states."""
        weight = self.embed_proj.get_parameter("0.weight")
        share = F.linear(state, weight[:, self.config.hidden_size :])
        latent: torch.Tensor = self.dropout(F.silu(hidden_input + share))
        return latent
