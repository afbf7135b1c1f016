"""What a frozen drafter proposes along recorded text: the lattices correctors learn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from dcoco_core.errors import CheckpointError, ConfigError
from dcoco_core.protocols import ContextProjection, Drafter
from dcoco_core.training.shards import Sequence as RecordedSequence
from dcoco_core.types import DraftRequest, Lattice, RowHeader, SamplingParams

END_OF_TEXT = -1
"""In `gold_ids`: the recorded text ends before this position."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """N drafted blocks of S positions with K candidates, beside the text that really followed."""

    anchor_ids: torch.Tensor  # [N] int32
    candidate_ids: torch.Tensor  # [N, S, K] int32
    log_probs: torch.Tensor  # [N, S, K] float32, the drafter's
    hidden: torch.Tensor  # [N, S, H] bfloat16
    last_context: torch.Tensor  # [N, H] bfloat16
    gold_ids: torch.Tensor  # [N, S] int32 or END_OF_TEXT
    target_probs: torch.Tensor  # [N, S, K] float16; 0 outside the target's recorded top tokens
    sequence_ids: torch.Tensor  # [N] int32, blocks of one text have one id
    temperature: torch.Tensor  # [N] float32, the text's
    loops: torch.Tensor  # [N] bool

    def __len__(self) -> int:
        return self.anchor_ids.shape[0]

    def to(self, device: torch.device) -> Blocks:
        """The blocks on `device`."""
        return Blocks(*(getattr(self, f.name).to(device) for f in dataclasses.fields(Blocks)))

    @property
    def num_positions(self) -> int:
        """S."""
        return self.candidate_ids.shape[1]

    def __getitem__(self, chosen: torch.Tensor | slice) -> Blocks:
        """Some of the blocks, by index, slice or mask."""
        return Blocks(*(getattr(self, f.name)[chosen] for f in dataclasses.fields(Blocks)))

    def lattice(self) -> Lattice:
        """The blocks as a drafter would send them, for greedy requests."""
        sampling = SamplingParams()
        # A drafted position has a state; what `padded` puts behind a block has none.
        lengths = (self.hidden != 0).any(dim=-1).sum(dim=1)
        headers = tuple(
            RowHeader(
                request_id=str(row),
                generation=0,
                start=0,
                anchor_id=anchor_id,
                num_draft_tokens=length,
                sampling=sampling,
                corrector="",
                context_start=0,
                num_context_rows=0,
            )
            for row, (anchor_id, length) in enumerate(
                zip(self.anchor_ids.tolist(), lengths.tolist(), strict=True)
            )
        )
        return Lattice(
            headers=headers,
            candidate_ids=self.candidate_ids.long(),
            candidate_logits=self.log_probs,
            log_normalizer=torch.zeros_like(self.log_probs[..., 0]),
            hidden=self.hidden,
            last_context=self.last_context,
        )

    def gold_ranks(self) -> torch.Tensor:
        """[N, S] rank of the gold token among the candidates, K where it is not among them."""
        matches = self.candidate_ids == self.gold_ids[..., None]
        ranks = matches.int().argmax(dim=-1)
        return ranks.masked_fill(~matches.any(dim=-1), self.candidate_ids.shape[2])

    def reachable(self) -> torch.Tensor:
        """[N, S] bool: the text goes on, and every earlier gold token was a candidate.

        Only there can a choice matter: elsewhere the block has been rejected before.
        """
        found = self.gold_ranks() < self.candidate_ids.shape[2]
        before = torch.cat([torch.ones_like(found[:, :1]), found[:, :-1]], dim=1)
        return before.int().cumprod(dim=1).bool() & (self.gold_ids != END_OF_TEXT)

    def best(self, num_candidates: int) -> Blocks:
        """The blocks with the first `num_candidates` of every position."""
        return replace(
            self,
            candidate_ids=self.candidate_ids[..., :num_candidates],
            log_probs=self.log_probs[..., :num_candidates],
            target_probs=self.target_probs[..., :num_candidates],
        )

    def padded(self, num_positions: int) -> Blocks:
        """The blocks with END_OF_TEXT positions behind them, `num_positions` in all."""
        missing = num_positions - self.num_positions

        def pad(tensor: torch.Tensor, value: int) -> torch.Tensor:
            behind = tensor.new_full((len(self), missing, *tensor.shape[2:]), value)
            return torch.cat([tensor, behind], dim=1)

        return replace(
            self,
            candidate_ids=pad(self.candidate_ids, 0),
            log_probs=pad(self.log_probs, 0),
            hidden=pad(self.hidden, 0),
            gold_ids=pad(self.gold_ids, END_OF_TEXT),
            target_probs=pad(self.target_probs, 0),
        )

    def save(self, path: Path, drafter_fingerprint: str) -> None:
        """Writes all blocks to one safetensors file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {f.name: getattr(self, f.name).contiguous() for f in dataclasses.fields(Blocks)}
        partial = path.with_name(f"{path.name}.partial")
        save_file(tensors, partial, metadata={"drafter_fingerprint": drafter_fingerprint})
        partial.replace(path)

    @staticmethod
    def load(path: Path, drafter_fingerprint: str) -> Blocks:
        """Reads what save wrote.

        Raises:
            CheckpointError: a damaged file, or blocks of another drafter.
        """
        try:
            with safe_open(path, "pt") as stored:
                found = (stored.metadata() or {}).get("drafter_fingerprint")
                if found != drafter_fingerprint:
                    raise CheckpointError(
                        f"{path} was drafted by {found}, the drafter is {drafter_fingerprint}"
                    )
                return Blocks(*(stored.get_tensor(f.name) for f in dataclasses.fields(Blocks)))
        except SafetensorError as error:
            raise CheckpointError(f"cannot read {path}: {error}") from None


def concatenate(parts: Sequence[Blocks]) -> Blocks:
    """All blocks of `parts`, in order."""
    return Blocks(
        *(torch.cat([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(Blocks))
    )


def draft_blocks(
    drafter: Drafter,
    projection: ContextProjection,
    sequences: Iterable[RecordedSequence],
    *,
    num_positions: int,
    stride: int = 1,
    num_rows: int = 32,
) -> Iterator[Blocks]:
    """Drafts at every `stride`-th token of every response, `num_rows` texts side by side.

    This is the serving path, fed with recorded text in place of a verifier's verdicts: the
    drafter sees what it would see had all tokens before the anchor been committed. Anchors it
    declines, past its longest sequence, are left out.
    """
    waiting = (_Text(number, sequence, stride) for number, sequence in enumerate(sequences))
    waiting = (text for text in waiting if text.has_next)
    texts: list[_Text] = []
    while True:
        texts = [text for text in texts if text.has_next]
        texts += islice(waiting, num_rows - len(texts))
        if not texts:
            return
        rows = [text.next_row(num_positions) for text in texts]
        context = projection(torch.cat([taps for _, taps in rows]).float())
        lattice = drafter.draft(DraftRequest(tuple(header for header, _ in rows), context))
        if lattice.gaps:
            raise ConfigError(f"the drafter dropped {len(lattice.gaps)} of {len(rows)} rows")
        drafter.release([text.request_id for text in texts if not text.has_next])
        drafted = torch.tensor([h.num_draft_tokens == num_positions for h in lattice.headers])
        if bool(drafted.any()):
            yield _with_gold(lattice, texts)[drafted]


class _Text:
    """A cursor over one recorded sequence: anchors from its first response token on."""

    def __init__(self, number: int, sequence: RecordedSequence, stride: int) -> None:
        self.sequence = sequence
        self.number = number
        self.request_id = f"text-{number}"
        self.start = 0
        self._stride = stride
        self._next_start = sequence.info.num_prompt
        self._token_ids = sequence.token_ids.tolist()

    @property
    def has_next(self) -> bool:
        return self._next_start + 1 < len(self._token_ids)

    def next_row(self, num_positions: int) -> tuple[RowHeader, torch.Tensor]:
        """The next anchor's header, and the taps of the tokens since the last one."""
        context_start, self.start = self.start, self._next_start
        self._next_start += self._stride
        header = RowHeader(
            request_id=self.request_id,
            generation=0,
            start=self.start,
            anchor_id=self._token_ids[self.start],
            num_draft_tokens=num_positions,
            sampling=SamplingParams(),
            corrector="",
            context_start=context_start,
            num_context_rows=self.start - context_start,
        )
        return header, self.sequence.taps[context_start : self.start]


def _with_gold(lattice: Lattice, texts: Sequence[_Text]) -> Blocks:
    candidate_ids = lattice.candidate_ids.int()
    gold, probs = zip(
        *(_gold(text, ids) for text, ids in zip(texts, candidate_ids, strict=True)), strict=True
    )
    return Blocks(
        anchor_ids=torch.tensor([h.anchor_id for h in lattice.headers], dtype=torch.int32),
        candidate_ids=candidate_ids,
        log_probs=lattice.candidate_logits - lattice.log_normalizer[..., None],
        hidden=lattice.hidden.bfloat16(),
        last_context=lattice.last_context.bfloat16(),
        gold_ids=torch.stack(gold),
        target_probs=torch.stack(probs),
        sequence_ids=torch.tensor([t.number for t in texts], dtype=torch.int32),
        temperature=torch.tensor([t.sequence.info.temperature for t in texts]),
        loops=torch.tensor([t.sequence.info.loops for t in texts]),
    )


def _gold(text: _Text, candidate_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What followed the anchor [S], and the target's probabilities of the candidates [S, K]."""
    num_positions = candidate_ids.shape[0]
    following = text.sequence.token_ids[text.start + 1 : text.start + 1 + num_positions]
    gold = torch.full((num_positions,), END_OF_TEXT, dtype=torch.int32)
    gold[: len(following)] = following
    # Row i of the recording predicts the token at i + 1.
    rows = slice(text.start, text.start + len(following))
    matches = candidate_ids[: len(following), :, None] == text.sequence.top_ids[rows, None]
    probs = torch.zeros(candidate_ids.shape, dtype=torch.float16)
    probs[: len(following)] = (
        (matches * text.sequence.top_log_probs[rows, None].exp()).sum(dim=-1).half()
    )
    return gold, probs
