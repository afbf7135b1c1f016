"""From verdicts to text, round by round: nothing is shown that could still change.

The text of a request does not depend on how its tokens were divided into rounds: the pieces a
stream sends, joined, are the text that a reply in one piece holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from dcoco_core.types import FinishReason, Verdict


@dataclass(frozen=True, slots=True)
class Delta:
    """One round for the client: the text that became certain, and the verdict up to the stop."""

    text: str
    verdict: Verdict


def cut(verdict: Verdict, num_tokens: int) -> Verdict:
    """The verdict as if the request had ended (by a stop) after its first `num_tokens` tokens."""
    return replace(
        verdict,
        token_ids=verdict.token_ids[:num_tokens],
        num_accepted=min(verdict.num_accepted, num_tokens),
        finish_reason=FinishReason.STOP,
    )


class Detokenizer:
    """Token ids to text, one at a time; holds back bytes that do not make a character yet."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._num_chars = 0

    def push(self, token_id: int) -> str:
        """The text that this token completes; "" while a character is incomplete."""
        self._ids.append(token_id)
        text = self._stream.step(self._tokenizer, token_id) or ""
        self._num_chars += len(text)
        return text

    def flush(self) -> str:
        """What was held back; a character that will never be complete becomes U+FFFD."""
        rest = self._tokenizer.decode(self._ids, skip_special_tokens=True)[self._num_chars :]
        self._num_chars += len(rest)
        return rest


class StopMatcher:
    """Finds stop strings in text that arrives in pieces, and never releases part of one.

    The stop string that is complete first wins, whatever the pieces are.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text that can be shown, and whether a stop string is complete."""
        text = self._held + text
        found = [
            (start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0
        ]
        if found:
            self._held = ""
            return text[: min(found)[1]], True
        split = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[split:]
        return text[:split], False

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


class TextStream:
    """One request's verdicts to deltas; cuts at the token that completes a stop string."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(stops)

    def push(self, verdict: Verdict) -> Delta:
        """The delta of one round. Its verdict carries a finish reason if it is the last."""
        pieces: list[str] = []
        for index, token_id in enumerate(verdict.token_ids):
            text, is_stopped = self._matcher.push(self._detokenizer.push(token_id))
            pieces.append(text)
            if is_stopped:
                return Delta("".join(pieces), cut(verdict, index + 1))
        if verdict.finish_reason is not None:
            # What is left of a character is U+FFFD, which may complete a stop string as well.
            text, is_stopped = self._matcher.push(self._detokenizer.flush())
            pieces += [text, self._matcher.flush()]
            if is_stopped:
                verdict = cut(verdict, len(verdict.token_ids))
        return Delta("".join(pieces), verdict)
