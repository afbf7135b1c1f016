"""Domino at inference: one GRU step and one small product per position."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dcoco_core.correctors.domino.head import DominoHead
from dcoco_core.correctors.draft_vocabulary import draft_rows
from dcoco_core.correctors.pair_scores import anchor_ids, on_device
from dcoco_core.correctors.prefix_walk import first_candidates, prefix_walk
from dcoco_core.types import Draft, Lattice

_ROWS_PER_PIECE = 8192


class DominoCorrector:
    """Implements the Corrector protocol on a DominoHead, whose device it computes on.

    The GRU's products of every token that can be proposed are computed once, here; those of
    anchors, which can be any token, once per lattice.

    Args:
        head: the weights.
        embedding: [V, H] of the target; kept, for anchors.
    """

    def __init__(self, head: DominoHead, embedding: torch.Tensor) -> None:
        self._head, self._embedding = head, embedding
        config, device = head.config, head.recurrent_weight.device
        self._rows: torch.Tensor | None = None
        proposed = embedding
        if config.is_reduced:
            self._rows = draft_rows(head.d2t, config.vocab_size)
            draft_ids = torch.arange(config.draft_vocab_size, device=device)
            proposed = embedding[head.d2t + draft_ids]
        with torch.inference_mode():
            pieces = [head.token_inputs(rows) for rows in torch.split(proposed, _ROWS_PER_PIECE)]
            # Padding candidates may be tokens that are never proposed.
            self._token_inputs = F.pad(torch.cat(pieces), (0, 0, 0, 1))
            self._output_rows = head.output_rows
        self._device = device

    @property
    def num_candidates(self) -> int:
        """K of the checkpoint."""
        return self._head.config.num_candidates

    @torch.inference_mode()
    def correct(self, lattice: Lattice) -> Draft:
        """See protocols.Corrector. The draft is on the corrector's device."""
        lattice = on_device(first_candidates(lattice, self.num_candidates), self._device)
        if lattice.candidate_ids.shape[:2].numel() == 0:
            return Draft(lattice.headers, lattice.candidate_ids[..., 0], gaps=lattice.gaps)
        ids = lattice.candidate_ids
        walk = _Walk(
            self._head,
            lattice.candidate_logits,
            codes=ids if self._rows is None else self._rows[ids],
            anchors=self._head.token_inputs(self._embedding[anchor_ids(lattice)]),
            token_inputs=self._token_inputs,
            output_rows=self._output_rows,
            hidden_inputs=self._head.hidden_inputs(lattice.hidden),
        )
        return prefix_walk(lattice, walk.scores_after)


class _Walk:
    """The state of one walk: R rows, each with the GRU's state of its chosen prefix."""

    def __init__(  # noqa: PLR0913
        self,
        head: DominoHead,
        logits: torch.Tensor,
        *,
        codes: torch.Tensor,
        anchors: torch.Tensor,
        token_inputs: torch.Tensor,
        output_rows: torch.Tensor,
        hidden_inputs: torch.Tensor,
    ) -> None:
        self._head, self._logits, self._codes = head, logits[..., None], codes
        self._anchors, self._token_inputs = anchors, token_inputs
        self._hidden_inputs = hidden_inputs
        self._outputs = output_rows[codes]  # [R, S, K, E]
        self._all_rows = torch.arange(len(anchors), device=anchors.device)
        self._state = anchors.new_zeros(len(anchors), head.config.gru_hidden_dim)

    def scores_after(self, position: int, rank: torch.Tensor) -> torch.Tensor:
        """Reads the token chosen before `position`, then scores; a prefix_walk.ScoresAfter."""
        chosen = self._anchors
        if position > 0:
            chosen = self._token_inputs[self._codes[self._all_rows, position - 1, rank]]
        self._state = self._head.next_state(chosen, self._state)
        if position < self._head.config.pure_draft_prefix_len:
            return self._logits[:, position, :, 0]
        latent = self._head.latents(self._hidden_inputs[:, position], self._state)
        outputs = self._outputs[:, position]
        return torch.baddbmm(self._logits[:, position], outputs, latent[..., None])[..., 0]
