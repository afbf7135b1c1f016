"""What every corrector would have had accepted at every position of a recorded plain answer.

Greedy and coupled decoding give one text whatever is drafted, so a round that starts anywhere in
that text can be judged by comparing its draft with what follows. The recorded answer is therefore
replayed through the decoding loop itself: a stand-in for the verifier computes the context rows of
prompt and answer in one packed pass, then commits one recorded token a step; the real drafter
drafts after each, and all correctors correct the same lattice. Walking the answer in rounds
(`speculate`) then gives what real decoding would have done, for every corrector at the cost of one
pass over the text. Rejection sampling has another text for every draft and cannot be replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from dcoco_core.decode import decode
from dcoco_core.drafts import plain_draft
from dcoco_core.errors import ConfigError
from dcoco_core.metrics import SpeculationRecord
from dcoco_core.protocols import ContextProjection, Corrector, Drafter
from dcoco_core.target.interface import PackedRows, TargetModel
from dcoco_core.target.sequence import Sequence as RequestState
from dcoco_core.types import (
    Draft,
    DraftRequest,
    FinishReason,
    Lattice,
    Request,
    Round,
    RowHeader,
    Verdict,
)

NUM_ORACLE_CANDIDATES = 16
ORACLE = "oracle"
"""Stands among the correctors for one that always picks the right one of 16 candidates."""
_AFTER_THE_END = -1


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request and the tokens that plain decoding answered it with."""

    request: Request
    response_ids: tuple[int, ...]


@dataclass(slots=True)
class ReplayedAnswer:
    """One answer of n tokens, with what a round after each of its first n - 1 would have done.

    Attributes:
        response_ids: the answer.
        num_drafted: [n - 1] proposals of the round, 0 where the server would decode plainly.
        num_accepted: by corrector (and ORACLE), [n - 1] proposals that equal what follows.
        asked, found_at_1, found_at_16: by place in the block, over all rounds: places that the
            answer reaches, and those where the token that followed was the drafter's first, or
            one of its first 16 candidates.
    """

    response_ids: tuple[int, ...]
    num_drafted: list[int]
    num_accepted: dict[str, list[int]]
    asked: list[int] = field(default_factory=list)
    found_at_1: list[int] = field(default_factory=list)
    found_at_16: list[int] = field(default_factory=list)

    def speculate(self, name: str, max_verified: int | None = None) -> SpeculationRecord:
        """Decodes the answer in rounds with one corrector's drafts.

        Args:
            name: a corrector, or ORACLE.
            max_verified: the most proposals of a block that a round verifies. The block is drafted
                at its full length either way: a drafter with attention both ways inside the block
                drafts a shorter one differently.
        """
        record = SpeculationRecord()
        place, last = 0, len(self.response_ids) - 1
        while place < last:
            length = self.num_drafted[place]
            if max_verified is not None:
                length = min(length, max_verified)
            accepted = min(self.num_accepted[name][place], length)
            # A stop or the cap ends the answer inside a round: nothing is added to it then.
            tokens = self.response_ids[place + 1 : place + accepted + 2]
            record.add(Verdict("", 0, place + 1, tokens, length or None, accepted))
            place += len(tokens)
        return record


def replay(
    recorded: Sequence[Recorded],
    target: TargetModel,
    projection: ContextProjection,
    drafter: Drafter,
    correctors: Mapping[str, Corrector],
    num_rows: int = 32,
) -> Iterator[tuple[int, ReplayedAnswer]]:
    """Replays answers, `num_rows` side by side; yields (index, what was found) as they end.

    Args:
        recorded: requests that name how many tokens to draft, and their plain answers.
        target: of which one pass over prompt and answer is made.
        projection: of the drafter's checkpoint.
        drafter: with room for `num_rows` requests and at least 16 candidates a position.
        correctors: by the names that results go by.
        num_rows: answers that are replayed together.

    Raises:
        ConfigError: the drafter lost a row's context, or has no room for it.
    """
    texts = {answer.request.request_id: answer.response_ids for answer in recorded}
    numbers = {answer.request.request_id: number for number, answer in enumerate(recorded)}
    judge = _Judge(correctors, recorded)
    verifier = ReplayVerifier(target, projection, texts, num_rows)
    requests = [answer.request for answer in recorded if answer.response_ids]
    for verdict in decode(requests, verifier, drafter, judge):
        if verdict.finish_reason is not None:
            yield numbers[verdict.request_id], judge.results.pop(verdict.request_id)


class ReplayVerifier:
    """Implements the Verifier protocol with recorded answers in place of decisions."""

    def __init__(
        self,
        target: TargetModel,
        projection: ContextProjection,
        texts: Mapping[str, tuple[int, ...]],
        max_slots: int,
        tokens_per_forward: int = 2048,
    ) -> None:
        self._target, self._projection, self._texts = target, projection, texts
        self._tokens_per_forward = tokens_per_forward
        self._free_slots = list(range(max_slots))
        self._open: dict[str, RequestState] = {}
        self._context: dict[str, torch.Tensor] = {}
        self._no_rows = torch.empty((0, 0))

    @property
    def num_free_slots(self) -> int:
        """See Verifier."""
        return len(self._free_slots)

    def open(self, request: Request) -> None:
        """See Verifier."""
        self._open[request.request_id] = RequestState(request, self._free_slots.pop())

    def close(self, request_id: str) -> None:
        """See Verifier."""
        state = self._open.pop(request_id, None)
        if state is not None:
            self._free_slots.append(state.slot)
            self._context.pop(request_id, None)

    def step(self, draft: Draft) -> Round:
        """Commits the next recorded token of every open request, whatever was drafted."""
        if draft.gaps:
            raise ConfigError(f"the drafter lost the context of {len(draft.gaps)} answers")
        self._compute_context()
        verdicts: list[Verdict] = []
        headers: list[RowHeader] = []
        rows: list[torch.Tensor] = []
        for request_id, state in list(self._open.items()):
            text = self._texts[request_id]
            token = text[state.num_generated]
            start = len(state.tokens)
            state.commit((token,))
            ended = state.num_generated == len(text)
            reason = FinishReason.LENGTH if ended else None
            verdicts.append(Verdict(request_id, 0, start, (token,), None, 0, reason))
            if ended:
                self.close(request_id)
            elif (header := state.next_header()) is not None:
                headers.append(header)
                rows.append(self._context[request_id][header.context_start : header.start])
                state.num_context_sent = header.start
        request = DraftRequest(tuple(headers), torch.cat([self._no_rows, *rows]))
        return Round(tuple(verdicts), request)

    @torch.inference_mode()
    def _compute_context(self) -> None:
        """Context rows of newly opened requests: one packed pass over whole texts, in groups."""
        new = [state for name, state in self._open.items() if name not in self._context]
        while new:
            group = [new.pop(0)]
            num_tokens = len(self._text(group[0]))
            while new and num_tokens + len(self._text(new[0])) <= self._tokens_per_forward:
                num_tokens += len(self._text(new[0]))
                group.append(new.pop(0))
            self._compute_group(group)

    def _text(self, state: RequestState) -> tuple[int, ...]:
        # Nothing is drafted after the last token, so its context row is not needed.
        return state.request.prompt_ids + self._texts[state.request.request_id][:-1]

    def _compute_group(self, group: list[RequestState]) -> None:
        texts = [self._text(state) for state in group]
        lengths = tuple(len(text) for text in texts)
        cache = self._target.new_cache(len(group), max(lengths))
        output = self._target.forward(
            torch.tensor([token for text in texts for token in text]),
            PackedRows(tuple(range(len(group))), (0,) * len(group), lengths),
            cache,
            self._projection.target_layer_ids,
        )
        # The verifier keeps and sends context rows in bfloat16.
        projected = self._projection(output.taps).to(torch.bfloat16)
        self._no_rows = projected[:0]
        for state, rows in zip(group, projected.split(lengths), strict=True):
            self._context[state.request.request_id] = rows


class _Judge:
    """Implements the Corrector protocol: asks all correctors, notes who is right, drafts none."""

    def __init__(self, correctors: Mapping[str, Corrector], recorded: Sequence[Recorded]) -> None:
        self._correctors = correctors
        self._starts: dict[str, int] = {}
        self.results: dict[str, ReplayedAnswer] = {}
        for answer in recorded:
            rounds = max(0, len(answer.response_ids) - 1)
            request = answer.request
            self._starts[request.request_id] = len(request.prompt_ids)
            width = request.speculation.num_draft_tokens
            self.results[request.request_id] = ReplayedAnswer(
                answer.response_ids,
                [0] * rounds,
                {name: [0] * rounds for name in (*correctors, ORACLE)},
                *([0] * width for _ in range(3)),
            )

    @property
    def num_candidates(self) -> int:
        """See Corrector."""
        return max((c.num_candidates for c in self._correctors.values()), default=1)

    def correct(self, lattice: Lattice) -> Draft:
        """See Corrector. An empty draft keeps the answer's own tokens coming one by one."""
        gold = self._gold(lattice)
        drafts = {name: c.correct(lattice).token_ids.cpu() for name, c in self._correctors.items()}
        candidates = lattice.candidate_ids[..., :NUM_ORACLE_CANDIDATES].cpu()
        found = (candidates == gold[..., None]).any(-1)
        hits = {name: token_ids == gold for name, token_ids in drafts.items()} | {ORACLE: found}
        counts = {name: hit.long().cumprod(1).sum(1).tolist() for name, hit in hits.items()}
        tallies = (gold != _AFTER_THE_END, candidates[..., 0] == gold, found)
        for row, header in enumerate(lattice.headers):
            result = self.results[header.request_id]
            place = header.start - self._starts[header.request_id]
            result.num_drafted[place] = header.num_draft_tokens
            for name, count in counts.items():
                result.num_accepted[name][place] = count[row]
            totals = (result.asked, result.found_at_1, result.found_at_16)
            for total, tally in zip(totals, tallies, strict=True):
                for k, is_one in enumerate(tally[row].tolist()):
                    total[k] += is_one
        return replace(plain_draft(lattice.headers), gaps=lattice.gaps)

    def _gold(self, lattice: Lattice) -> torch.Tensor:
        """[R, S] what the answers go on with; _AFTER_THE_END past an answer or a row's block."""
        gold = torch.full(lattice.candidate_ids.shape[:2], _AFTER_THE_END)
        for row, header in enumerate(lattice.headers):
            first = header.start - self._starts[header.request_id] + 1
            text = self.results[header.request_id].response_ids
            following = text[first : first + header.num_draft_tokens]
            gold[row, : len(following)] = torch.tensor(following, dtype=torch.int64)
        return gold
