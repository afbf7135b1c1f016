"""Teaches some heads to look where the text has said the same before.

Much of what a drafter can know of names, code and repeating answers stands in the context already:
after a token that occurred before, what followed it then is likely to follow now. A small drafter
does not find this by itself (docs/log.md), since a head must match the token before the proposal
with the tokens of context rows before its values are worth anything. So the attention of one group
of heads is supervised: on every row whose two tokens, the one it stands on and the one it should
propose, stand side by side in the context, these heads should look there. Ours, not published.
"""

from __future__ import annotations

import torch

from dcoco_core.drafters.dflash.model import KeyValue, PackedAttend
from dcoco_core.training.drafter_batch import BlockBatch


class CopyingAttend(PackedAttend):
    """Attention that also says how far its first key head is from looking at what to copy.

    Args:
        context: see PackedAttend.
        masks: see PackedAttend.
        batch: the batch the masks are of.
    """

    def __init__(
        self, context: list[KeyValue], masks: list[torch.Tensor], batch: BlockBatch
    ) -> None:
        super().__init__(context, masks)
        self._copies = copied_rows(batch)  # [R, Q, T]
        self._weights = (batch.weights.flatten(1) * self._copies.any(-1))[:, None]  # [R, 1, Q]
        self._losses: list[torch.Tensor] = []

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See Attend."""
        group = queries.shape[1] // keys.shape[1]
        context = self._context[layer].keys[:, :1].to(keys.dtype)
        seen = torch.cat([context, keys[:, :1]], dim=-2)  # [R, 1, T + Q, d]
        scores = (queries[:, :group] @ seen.transpose(-1, -2)).float()
        scores = scores * queries.shape[-1] ** -0.5
        scores = scores.masked_fill(~self._masks[layer], float("-inf"))
        num_context = context.shape[-2]
        copied = scores[..., :num_context].masked_fill(~self._copies[:, None], float("-inf"))
        has_copy = self._weights > 0
        missed = scores.logsumexp(-1) - copied.logsumexp(-1)  # -log of the attention there
        missed = missed.masked_fill(~has_copy, 0.0)  # [R, group, Q]
        total = self._weights.sum().clamp(min=1e-6) * group
        self._losses.append((missed * self._weights).sum() / total)
        return super().__call__(layer, queries, keys, values)

    def loss(self) -> torch.Tensor:
        """Mean over layers, heads and rows that can copy of -log(attention to what to copy)."""
        return torch.stack(self._losses).mean()


def copied_rows(batch: BlockBatch) -> torch.Tensor:
    """[R, Q, T] bool: context row t holds the token before the proposal, and t + 1 the proposal.

    Only rows before the anchor count; the token after the last of them is the anchor itself.
    """
    tokens = batch.token_ids  # [R, T]
    following = torch.nn.functional.pad(tokens[:, 1:], (0, 1), value=-1)
    labels = batch.label_ids.flatten(1)  # [R, Q]
    before = tokens.gather(1, batch.positions.clamp(max=tokens.shape[1] - 1))
    same = (tokens[:, None] == before[..., None]) & (following[:, None] == labels[..., None])
    return same & batch.masks[0][:, 0, :, : tokens.shape[1]]
