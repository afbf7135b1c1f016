"""DSpark's heads under training."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from dcoco_core.correctors.checkpoint import Belonging
from dcoco_core.correctors.dspark.checkpoint import save_dspark
from dcoco_core.correctors.dspark.corrector import DSparkCorrector
from dcoco_core.correctors.dspark.heads import DSparkConfig, DSparkHeads
from dcoco_core.correctors.options import with_design
from dcoco_core.correctors.pair_scores import left_ids
from dcoco_core.correctors.trainable import TrainingSource
from dcoco_core.types import Lattice


def new_dspark(source: TrainingSource, head_type: str) -> TrainableDSpark:
    """Untrained heads of the sizes and the design asked for."""
    vocab_size, hidden_size = source.embedding.shape
    fixed = {
        "hidden_size": hidden_size,
        "vocab_size": vocab_size,
        "draft_vocab_size": vocab_size if source.vocab_ids is None else len(source.vocab_ids),
        "markov_head_type": head_type,
        "num_candidates": source.num_candidates,
    }
    config = with_design(DSparkConfig, fixed, source.design)
    heads = DSparkHeads(config, source.vocab_ids, source.dropout)
    return TrainableDSpark(heads.to(source.embedding.device))


class TrainableDSpark:
    """Implements TrainableCorrector and, for the confidence head, WithOwnLoss on DSparkHeads."""

    def __init__(self, heads: DSparkHeads) -> None:
        self._heads, self._head = heads, heads.markov_head
        self._w1_codes, self._w2_codes = heads.code_rows()

    @property
    def module(self) -> nn.Module:
        """The heads."""
        return self._heads

    def scores(
        self,
        lattice: Lattice,
        gold_ids: torch.Tensor,
        rows: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        """See TrainableCorrector. Every row is walked once, whatever places are asked for."""
        # Past the text's end nothing is asked, so any token will do there.
        codes = self._w1_codes[left_ids(lattice, gold_ids).clamp(min=0)]
        tokens = self._head.token_inputs(self._head.markov_w1(codes))
        hidden = self._head.hidden_inputs(lattice.hidden)
        state = tokens.new_zeros(len(tokens), self._heads.config.markov_rank)
        steps = []
        for position in range(tokens.shape[1]):
            latent, state = self._head.step(tokens[:, position], hidden[:, position], state)
            steps.append(latent)
        latents = self._heads.dropout(torch.stack(steps, dim=1)[rows, positions])
        out_codes = self._w2_codes[lattice.candidate_ids[rows, positions]]
        outputs = F.embedding(out_codes, self._heads.output_rows())
        biases = torch.einsum("pf,pkf->pk", latents, outputs)
        return lattice.candidate_logits[rows, positions] + biases

    def own_loss(
        self,
        previous_ids: torch.Tensor,
        hidden: torch.Tensor,
        scores: torch.Tensor,
        target_probs: torch.Tensor,
    ) -> torch.Tensor:
        """Cross-entropy of the confidence with the chance of acceptance at temperature 1.

        That chance is 1 - TV of draft and target. The draft has no mass outside the candidates,
        so it is the sum over them of the smaller probability, and exact but for what the recording
        of the target's top tokens leaves out.
        """
        if not self._heads.config.enable_confidence_head:
            return scores.new_zeros(())
        chance = torch.minimum(scores.detach().softmax(dim=-1), target_probs).sum(dim=-1)
        w1_rows = self._head.markov_w1(self._w1_codes[previous_ids])
        logits = self._heads.confidence_logits(w1_rows, hidden)
        return F.binary_cross_entropy_with_logits(logits, chance.clamp(0.0, 1.0))

    def inference(self) -> DSparkCorrector:
        """See TrainableCorrector."""
        return DSparkCorrector(copy.deepcopy(self._heads).eval())

    def save(self, folder: Path, belonging: Belonging) -> None:
        """See TrainableCorrector."""
        save_dspark(folder, self._heads, belonging)
