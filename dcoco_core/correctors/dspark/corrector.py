"""DSpark's heads at inference: a gather and a small product per position."""

from __future__ import annotations

import torch

from dcoco_core.correctors.dspark.heads import DSparkHeads
from dcoco_core.correctors.pair_scores import anchor_ids, left_ids, on_device
from dcoco_core.correctors.prefix_walk import ScoresAfter, first_candidates, prefix_walk
from dcoco_core.errors import ConfigError
from dcoco_core.types import Draft, Lattice


class DSparkCorrector:
    """Implements the Corrector protocol on DSparkHeads, whose device it computes on.

    Everything that depends on a token alone is a row of a table computed once, here; everything
    that depends on a position alone is one product per lattice. Left for the walk are the row of
    the chosen token and a product with the K candidates, and the recurrent product of `rnn`.
    """

    def __init__(self, heads: DSparkHeads) -> None:
        self._heads, self._head = heads, heads.markov_head
        self._w1_codes, self._w2_codes = heads.code_rows()
        self._device = self._w1_codes.device
        with torch.inference_mode():
            self._token_inputs = self._head.token_inputs(self._head.markov_w1.weight)
            self._output_rows = heads.output_rows()

    @property
    def num_candidates(self) -> int:
        """K of the checkpoint."""
        return self._heads.config.num_candidates

    @torch.inference_mode()
    def correct(self, lattice: Lattice) -> Draft:
        """See protocols.Corrector. The draft is on the corrector's device."""
        lattice = on_device(first_candidates(lattice, self.num_candidates), self._device)
        if lattice.candidate_ids.shape[:2].numel() == 0:
            return Draft(lattice.headers, lattice.candidate_ids[..., 0], gaps=lattice.gaps)
        return prefix_walk(lattice, self._scores_after(lattice))

    @torch.inference_mode()
    def confidences(self, lattice: Lattice, draft: Draft) -> torch.Tensor:
        """[R, S] float32: how likely each token of `draft` is accepted if all before it are.

        Trained at temperature 1. It reads the drafter's state and the token before, never the
        token itself. Padding positions have a value without meaning.

        Args:
            lattice: what was corrected.
            draft: what `correct` made of it.

        Raises:
            ConfigError: the checkpoint has no confidence head.
        """
        if not self._heads.config.enable_confidence_head:
            raise ConfigError("this dspark checkpoint has no confidence head")
        lattice = on_device(lattice, self._device)
        left = self._w1_codes[left_ids(lattice, draft.token_ids.to(self._device))]
        rows = self._head.markov_w1.weight[left]
        return self._heads.confidence_logits(rows, lattice.hidden).sigmoid()

    def _scores_after(self, lattice: Lattice) -> ScoresAfter:
        hidden = self._head.hidden_inputs(lattice.hidden)
        outputs = self._output_rows[self._w2_codes[lattice.candidate_ids]]  # [R, S, K, r]
        codes = self._w1_codes[lattice.candidate_ids]
        anchors = self._w1_codes[anchor_ids(lattice)]
        logits = lattice.candidate_logits[..., None]
        all_rows = torch.arange(len(anchors), device=self._device)
        state = outputs.new_zeros(len(anchors), outputs.shape[-1])

        def scores_after(position: int, rank: torch.Tensor) -> torch.Tensor:
            nonlocal state
            left = codes[all_rows, position - 1, rank] if position else anchors
            latent, state = self._head.step(self._token_inputs[left], hidden[:, position], state)
            product = torch.baddbmm(logits[:, position], outputs[:, position], latent[..., None])
            return product[..., 0]

        return scores_after
