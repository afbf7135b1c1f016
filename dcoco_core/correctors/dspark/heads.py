"""The Markov heads and the confidence head of DSpark (arXiv 2607.05147).

Names of tensors, config keys and formulas are those of the published checkpoints; rank 64 at
hidden size 576 keeps their proportion (256 at 2560 to 5120, rounded up). W2 has a row per token
that the drafter proposes, as published. The published W1 has a row per token of the target, which
for a drafter that proposes few of them is mostly rows for anchors the drafter cannot propose: with
`markov_w1_rows` "draft_and_other" those share one row, the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from dcoco_core.correctors.draft_vocabulary import draft_rows, offsets


@dataclass(frozen=True, slots=True)
class DSparkConfig:
    """Sizes and design of a head, in the published keys where there is one."""

    hidden_size: int
    vocab_size: int
    draft_vocab_size: int
    markov_head_type: Literal["vanilla", "gated", "rnn"]
    markov_rank: int = 64
    enable_confidence_head: bool = True
    confidence_head_with_markov: bool = True
    """Whether the confidence reads the token before, beside the drafter's state."""
    markov_w1_rows: Literal["target", "draft_and_other"] = "draft_and_other"
    num_candidates: int = 16

    @property
    def is_reduced(self) -> bool:
        """Whether the drafter proposes only a part of the target's vocabulary."""
        return self.draft_vocab_size < self.vocab_size

    @property
    def shares_a_row(self) -> bool:
        """Whether W1 is indexed by draft id, all other tokens on one more row."""
        return self.is_reduced and self.markov_w1_rows == "draft_and_other"

    @property
    def num_predecessors(self) -> int:
        """Rows of W1."""
        return self.draft_vocab_size + 1 if self.shares_a_row else self.vocab_size


class VanillaHead(nn.Module):
    """bias = W2 W1[previous token].

    The other heads differ in what they make of W1's row: `step` turns what is known of the
    previous token (token_inputs, a function of it alone), of the position (hidden_inputs) and of
    the row's history (state) into the latent that W2 reads, and the next state.
    """

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(config.num_predecessors, config.markov_rank)
        self.markov_w2 = nn.Linear(config.markov_rank, config.draft_vocab_size, bias=False)
        # An untrained head returns the draft as it is.
        nn.init.zeros_(self.markov_w2.weight)

    def token_inputs(self, w1_rows: torch.Tensor) -> torch.Tensor:
        """[..., r] rows of W1 to what `step` reads of a token."""
        return w1_rows

    def hidden_inputs(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., H] drafter states to what `step` reads of a position; here nothing, [..., 0]."""
        return hidden[..., :0]

    def step(
        self, token: torch.Tensor, hidden: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Latents [R, r] and next states [R, r]. The first state is zero."""
        del hidden
        return token, state


class GatedHead(VanillaHead):
    """bias = W2 (sigmoid(G [h_k ; w] + b) * w), w = W1[previous token]."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__(config)
        self._hidden_size = config.hidden_size
        self.gate_proj = nn.Linear(config.hidden_size + config.markov_rank, config.markov_rank)

    def token_inputs(self, w1_rows: torch.Tensor) -> torch.Tensor:
        """[..., 2 r]: w, and its share of the gate."""
        share = F.linear(w1_rows, self.gate_proj.weight[:, self._hidden_size :])
        return torch.cat([w1_rows, share], dim=-1)

    def hidden_inputs(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., r] the state's share of the gate."""
        weight = self.gate_proj.weight
        return F.linear(
            hidden.to(weight.dtype), weight[:, : self._hidden_size], self.gate_proj.bias
        )

    def step(
        self, token: torch.Tensor, hidden: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See VanillaHead; this head has no history either."""
        row, share = token.chunk(2, dim=-1)
        return torch.sigmoid(share + hidden) * row, state


class RNNHead(VanillaHead):
    """z = J [s ; w ; h_k] + b in three parts gate, candidate, output; w = W1[previous token].

    s becomes sigmoid(gate) s + (1 - sigmoid(gate)) tanh(candidate), and bias = W2 tanh(output).
    """

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__(config)
        self._rank = config.markov_rank
        num_inputs = 2 * config.markov_rank + config.hidden_size
        self.joint_proj = nn.Linear(num_inputs, 3 * config.markov_rank)

    def token_inputs(self, w1_rows: torch.Tensor) -> torch.Tensor:
        """[..., 3 r] w's share of z."""
        return F.linear(w1_rows, self.joint_proj.weight[:, self._rank : 2 * self._rank])

    def hidden_inputs(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., 3 r] the state's share of z."""
        weight = self.joint_proj.weight
        return F.linear(hidden.to(weight.dtype), weight[:, 2 * self._rank :], self.joint_proj.bias)

    def step(
        self, token: torch.Tensor, hidden: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See VanillaHead."""
        z = token + hidden + F.linear(state, self.joint_proj.weight[:, : self._rank])
        gate, candidate, output = z.chunk(3, dim=-1)
        return torch.tanh(output), torch.lerp(torch.tanh(candidate), state, torch.sigmoid(gate))


_HEADS: Mapping[str, type[VanillaHead]] = {
    "vanilla": VanillaHead,
    "gated": GatedHead,
    "rnn": RNNHead,
}


class _ConfidenceHead(nn.Module):
    """The published tensor in its published place."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        rank = config.markov_rank if config.confidence_head_with_markov else 0
        self.proj = nn.Linear(config.hidden_size + rank, 1)
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.proj.bias)


class DSparkHeads(nn.Module):
    """A Markov head and, unless switched off, a confidence head.

    Args:
        config: sizes and design.
        vocab_ids: [draft_vocab_size] ascending target ids; None for all, or when weights with
            their own map are loaded next.
        dropout: on the latents, while training only.
    """

    d2t: torch.Tensor

    def __init__(
        self, config: DSparkConfig, vocab_ids: torch.Tensor | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.config = config
        self.markov_head = _HEADS[config.markov_head_type](config)
        if config.enable_confidence_head:
            self.confidence_head = _ConfidenceHead(config)
        self.dropout = nn.Dropout(dropout)
        if config.is_reduced:
            self.register_buffer("d2t", offsets(config.draft_vocab_size, vocab_ids))

    def code_rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """[V] rows of W1, and [V] rows of `output_rows`, of every token of the target."""
        config, device = self.config, self.markov_head.markov_w1.weight.device
        every = torch.arange(config.vocab_size, device=device)
        if not config.is_reduced:
            return every, every
        rows = draft_rows(self.d2t, config.vocab_size)
        return rows if config.shares_a_row else every, rows

    def output_rows(self) -> torch.Tensor:
        """[draft vocabulary + 1, r]: W2 and zeros, for tokens never proposed."""
        return F.pad(self.markov_head.markov_w2.weight, (0, 0, 0, 1))

    def confidence_logits(self, w1_rows: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """[...] in fp32, of positions with states [..., H] after tokens with rows [..., r] of W1.

        The token that is judged does not enter, so a draft may be cut by it without bias.
        """
        features = hidden.float()
        if self.config.confidence_head_with_markov:
            features = torch.cat([features, w1_rows.float()], dim=-1)
        projection = self.confidence_head.proj
        logits = F.linear(features, projection.weight.float(), projection.bias.float())
        return logits[..., 0]
