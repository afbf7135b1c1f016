"""What travels between the stages of a round, and what a request is.

Everything here is a frozen value. Tensors appear in annotations only, so that a process which
routes these values without computing on them (the router) never loads torch.

Shape letters: R rows, S draft positions, K candidates, H hidden size, N packed tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Rule(StrEnum):
    """How the verifier decides a token. See docs/lossless.md."""

    GREEDY = "greedy"
    REJECTION = "rejection"
    COUPLED = "coupled"


class FinishReason(StrEnum):
    """Why a request ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The distribution a request samples from.

    `noise_key` keys every random draw of the request; a request with a `seed` uses the seed, one
    without gets a fresh 64-bit key at admission. Filters apply in the order temperature, top-k,
    top-p, ties to the lowest id.
    """

    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    seed: int | None = None
    noise_key: int = 0

    @property
    def rule(self) -> Rule:
        """Greedy at temperature 0, coupled with a seed, rejection otherwise."""
        if self.temperature == 0.0:
            return Rule.GREEDY
        return Rule.REJECTION if self.seed is None else Rule.COUPLED


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a request ends: `max_tokens` generated tokens, or one of `stop_ids` (EOS included)."""

    max_tokens: int
    stop_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Speculation:
    """How a request wants to be drafted: `num_draft_tokens` 0 is plain decoding."""

    num_draft_tokens: int = 0
    corrector: str = "none"


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to decode. `generation` grows when the same request is reopened elsewhere."""

    request_id: str
    prompt_ids: tuple[int, ...]
    limits: Limits
    sampling: SamplingParams = field(default_factory=SamplingParams)
    speculation: Speculation = field(default_factory=Speculation)
    generation: int = 0


@dataclass(frozen=True, slots=True)
class RowHeader:
    """One request's place in one round.

    `start` is the anchor's position in the sequence (prompt included), so the block's first
    proposal is for position start + 1. `context_start` is the position of the first context row
    that travels with this header; `num_context_rows` of them follow, ending at start - 1.
    """

    request_id: str
    generation: int
    start: int
    anchor_id: int
    num_draft_tokens: int
    sampling: SamplingParams
    corrector: str
    context_start: int
    num_context_rows: int


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Verifier to drafter: the headers of the next round and the context rows that are new."""

    headers: tuple[RowHeader, ...]
    context: torch.Tensor  # [sum of num_context_rows, H], rows in header order


@dataclass(frozen=True, slots=True)
class ContextGap:
    """A row the drafter could not draft: it holds only `num_rows` context rows of the request."""

    request_id: str
    generation: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class Lattice:
    """Drafter to corrector: the top-K candidates of every position, and what scores them.

    Position k of a row proposes the token at header.start + 1 + k. S is the largest
    num_draft_tokens in the batch; positions past a row's own number are padding.
    Candidates are ordered by falling logit, ties to the lowest id.
    """

    headers: tuple[RowHeader, ...]
    candidate_ids: torch.Tensor  # [R, S, K] int64, target vocabulary
    candidate_logits: torch.Tensor  # [R, S, K] float32
    log_normalizer: torch.Tensor  # [R, S] float32, log-sum-exp of all draft logits
    hidden: torch.Tensor  # [R, S, H] final-normed drafter states
    last_context: torch.Tensor  # [R, H] context row of position start - 1
    gaps: tuple[ContextGap, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """Corrector to verifier: one token per position, and the distribution a sampled one came from.

    For a row whose draft is deterministic draft_probs is one-hot at the token. S and padding as in
    Lattice. `draft_probs` is None when no row of the batch was sampled.
    """

    headers: tuple[RowHeader, ...]
    token_ids: torch.Tensor  # [R, S] int64
    candidate_ids: torch.Tensor | None = None  # [R, S, K] int64
    draft_probs: torch.Tensor | None = None  # [R, S, K] float32, over candidate_ids
    gaps: tuple[ContextGap, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one round committed for one request.

    `start` is the position of the first committed token. `num_accepted` counts draft tokens among
    `token_ids` (never one that was cut), so acceptance statistics derive from committed text alone.
    `num_drafted` is None for a round without a draft (prefill, plain decoding).
    """

    request_id: str
    generation: int
    start: int
    token_ids: tuple[int, ...]
    num_drafted: int | None
    num_accepted: int
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """What one verifier step produced: verdicts, and the request for the next drafts."""

    verdicts: tuple[Verdict, ...]
    draft_request: DraftRequest
