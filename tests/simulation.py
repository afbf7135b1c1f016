"""Many short texts at once, decoded speculatively with the toy target and the real rules.

`simulate` runs thousands of independent rows through `decide_coupled` or `decide_rejection`, block
after block, and `goodness_of_fit` compares the texts with the exact law of the target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.stats
import torch

from dcoco_core.sampling.filters import Filters, filter_kind
from dcoco_core.sampling.noise import Stream, gumbel, stream_key
from dcoco_core.types import Rule, SamplingParams
from dcoco_core.verification.decide import (
    DraftColumns,
    RowBatch,
    decide_coupled,
    decide_rejection,
)
from dcoco_core.verification.rejection import RejectionKeys
from tests.toys import NUM_CANDIDATES, VOCAB_SIZE, draft_table, target_table

PROMPT = (3, 5)
NUM_TOKENS = 3
PLAIN_T1 = SamplingParams(temperature=1.0)
FILTERED = SamplingParams(temperature=0.7, top_k=50, top_p=0.9)
_CHUNK = 4096

Outcome = tuple[torch.Tensor, torch.Tensor]
# (logits, batch, what the draft says it was drawn from, keys by stream) to num_accepted, next_ids
DecideRejection = Callable[
    [torch.Tensor, RowBatch, DraftColumns, dict[Stream, torch.Tensor]], Outcome
]


def true_rejection(
    logits: torch.Tensor, batch: RowBatch, columns: DraftColumns, keys: dict[Stream, torch.Tensor]
) -> Outcome:
    rejection_keys = RejectionKeys(keys[Stream.ACCEPT], keys[Stream.RESIDUAL])
    return decide_rejection(logits, batch, columns, rejection_keys)


@dataclass(frozen=True)
class Case:
    """One way to decode: the distribution, the rule, the drafter, the block."""

    sampling: SamplingParams
    rule: Rule
    drafter: str = "bad"
    num_draft_tokens: int = 2
    is_draft_sampled: bool = True
    # What the draft claims to come from: "own" what it was drawn from, the others are lies.
    claims: str = "own"
    decide_rejection: DecideRejection = true_rejection


@cache
def _target() -> torch.Tensor:
    return target_table()


@cache
def _drafter(kind: str) -> torch.Tensor:
    return draft_table(kind, _target())


@dataclass(frozen=True)
class _Drafted:
    token_ids: torch.Tensor  # [R, L]
    columns: DraftColumns  # [R, L + 1, K]


def simulate(
    case: Case,
    num_samples: int,
    num_tokens: int = NUM_TOKENS,
    first_key: int = 0,
    on_round: Callable[[torch.Tensor], None] | None = None,
) -> torch.Tensor:
    """Texts of `num_tokens` after PROMPT, [num_samples, num_tokens]; row i has key first_key + i.

    `on_round` sees every round's num_accepted.
    """
    chunks = []
    for first in range(first_key, first_key + num_samples, _CHUNK):
        noise_keys = range(first, min(first + _CHUNK, first_key + num_samples))
        chunks.append(_simulate_chunk(case, noise_keys, num_tokens, on_round))
    return torch.cat(chunks)


def _simulate_chunk(
    case: Case,
    noise_keys: range,
    num_tokens: int,
    on_round: Callable[[torch.Tensor], None] | None,
) -> torch.Tensor:
    target = _target()
    num_rows, length = len(noise_keys), case.num_draft_tokens
    kind = filter_kind(case.sampling, VOCAB_SIZE)
    filters = Filters.of([case.sampling] * num_rows, kind, target.device)
    keys = {
        stream: torch.tensor([stream_key(key, stream) for key in noise_keys]) for stream in Stream
    }
    text = torch.zeros((num_rows, len(PROMPT) + num_tokens + length + 1), dtype=torch.int64)
    text[:, : len(PROMPT)] = torch.tensor(PROMPT)
    ends = torch.full((num_rows,), len(PROMPT))
    while True:
        rows = (ends < len(PROMPT) + num_tokens).nonzero().flatten()
        if not rows.numel():
            return text[:, len(PROMPT) : len(PROMPT) + num_tokens]
        starts = ends[rows] - 1
        anchors = torch.stack([text[rows, starts - 1], text[rows, starts]], 1)
        row_keys = {stream: table[rows] for stream, table in keys.items()}
        drafted = _draft(case, anchors, starts, row_keys)
        path = torch.cat([anchors, drafted.token_ids], 1)
        logits = target[path[:, :-1], path[:, 1:]].reshape(-1, VOCAB_SIZE)
        batch = RowBatch(
            first_logits=torch.arange(rows.numel()) * (length + 1),
            starts=starts,
            filters=filters.rows(rows),
            draft_ids=torch.nn.functional.pad(drafted.token_ids, (0, 1), value=-1),
        )
        if case.rule is Rule.COUPLED:
            num_accepted, next_ids = decide_coupled(logits, batch, row_keys[Stream.TARGET])
        else:
            num_accepted, next_ids = case.decide_rejection(logits, batch, drafted.columns, row_keys)
        if on_round is not None:
            on_round(num_accepted)
        for place in range(length):
            text[rows, ends[rows] + place] = drafted.token_ids[:, place]
        text[rows, ends[rows] + num_accepted] = next_ids
        ends[rows] += num_accepted + 1


def _draft(
    case: Case, anchors: torch.Tensor, starts: torch.Tensor, keys: dict[Stream, torch.Tensor]
) -> _Drafted:
    """Left to right over NUM_CANDIDATES candidates, each after the tokens drafted before it."""
    table = _drafter(case.drafter)
    stream = Stream.TARGET if case.rule is Rule.COUPLED else Stream.DRAFT
    before, last = anchors[:, 0], anchors[:, 1]
    tokens, ids, probs = [], [], []
    for place in range(case.num_draft_tokens):
        all_scores = table[before, last].double() / case.sampling.temperature
        scores, candidates = all_scores.topk(NUM_CANDIDATES)
        noise = torch.zeros_like(scores)
        if case.is_draft_sampled:
            noise = gumbel(keys[stream][:, None], (starts + 1 + place)[:, None], candidates)
        choice = (scores + noise).argmax(-1, keepdim=True)
        if case.claims == "uncut":
            ids.append(torch.arange(VOCAB_SIZE).expand(len(anchors), -1))
            probs.append(all_scores.softmax(-1))
        else:
            soft = case.is_draft_sampled or case.claims == "soft"
            one_hot = torch.zeros_like(scores).scatter(-1, choice, 1.0)
            ids.append(candidates)
            probs.append(scores.softmax(-1) if soft else one_hot)
        before, last = last, candidates.gather(-1, choice)[:, 0]
        tokens.append(last)
    # The place after the draft, where the bonus token is decided: no candidates.
    width = VOCAB_SIZE if case.claims == "uncut" else NUM_CANDIDATES
    ids.append(torch.zeros((len(anchors), width), dtype=torch.int64))
    probs.append(torch.zeros((len(anchors), width), dtype=torch.float64))
    token_ids = torch.stack(tokens, 1) if tokens else anchors[:, :0]
    return _Drafted(token_ids, DraftColumns(torch.stack(ids, 1), torch.stack(probs, 1)))


def filtered_probs(logits: np.ndarray, sampling: SamplingParams) -> np.ndarray:
    """Temperature, top-k, top-p over the last axis, written the obvious way."""
    scores = logits.astype(np.float64) / sampling.temperature
    order = np.argsort(-scores, axis=-1, kind="stable")
    probs = np.exp(np.take_along_axis(scores, order, -1) - scores.max(-1, keepdims=True))
    if sampling.top_k:
        probs[..., sampling.top_k :] = 0.0
    probs /= probs.sum(-1, keepdims=True)
    if sampling.top_p < 1.0:
        probs[np.cumsum(probs, -1) - probs >= sampling.top_p] = 0.0
        probs /= probs.sum(-1, keepdims=True)
    result: np.ndarray = np.empty_like(probs)
    np.put_along_axis(result, order, probs, -1)
    return result


def exact_law(sampling: SamplingParams) -> np.ndarray:
    """Probability of every text of NUM_TOKENS tokens after PROMPT, [V, V, V]."""
    table = filtered_probs(_target().numpy(), sampling)
    two_back, one_back = PROMPT
    first, second = table[two_back, one_back], table[one_back]
    law: np.ndarray = first[:, None, None] * second[:, :, None] * table
    return law


def goodness_of_fit(texts: torch.Tensor, sampling: SamplingParams) -> float:
    """p-value of a chi-square test of the texts against the exact law.

    Texts with fewer than 8 expected occurrences are pooled by their first two tokens and, what is
    then still rare, into one cell. A text that cannot occur gives 0.
    """
    law = exact_law(sampling).reshape(VOCAB_SIZE**2, VOCAB_SIZE)
    index = (texts[:, 0] * VOCAB_SIZE + texts[:, 1]) * VOCAB_SIZE + texts[:, 2]
    counts = np.bincount(index.numpy(), minlength=law.size).reshape(law.shape)
    if counts[law == 0.0].any():
        return 0.0
    expected = law * len(texts)
    is_rare = expected < 8.0
    cells = [(counts[~is_rare], expected[~is_rare])]
    pooled = (np.where(is_rare, counts, 0).sum(1), np.where(is_rare, expected, 0.0).sum(1))
    is_rare_pool = pooled[1] < 8.0
    cells.append((pooled[0][~is_rare_pool], pooled[1][~is_rare_pool]))
    rest = (pooled[0][is_rare_pool].sum(keepdims=True), pooled[1][is_rare_pool].sum(keepdims=True))
    if rest[1][0] > 0.0:
        cells.append(rest)
    observed = np.concatenate([cell[0] for cell in cells])
    wanted = np.concatenate([cell[1] for cell in cells])
    return float(scipy.stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)
