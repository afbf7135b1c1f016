"""Plain answers of the target, kept in a file for any drafter and corrector to be judged on.

One JSON object a line, `{"prompt_ids": [...], "response_ids": [...]}`, written as answers end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from dcoco_core.decode import decode
from dcoco_core.evaluation.stack import Stack
from dcoco_core.types import Request

Texts = dict[tuple[int, ...], tuple[int, ...]]
"""Answers by prompt."""


def noise_key_of(prompt_ids: tuple[int, ...]) -> int:
    """63 bits of the prompt alone: a sampled answer does not depend on what is asked beside it."""
    digest = hashlib.sha256(repr(prompt_ids).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def answer_plainly(
    stack: Stack,
    requests: Sequence[Request],
    path: Path,
    num_rows: int,
    on_answer: Callable[[], None] = lambda: None,
) -> Texts:
    """Answers by prompt, out of `path`; those it lacks are decoded together and added to it.

    Args:
        stack: whose target answers.
        requests: of different prompts. Those of one file differ in nothing else.
        path: made if it is not there; what an interrupted run left is used.
        num_rows: requests that are decoded together.
        on_answer: called after each new one.
    """
    texts = _read(path)
    todo = {one.request_id: one for one in requests if one.prompt_ids not in texts}
    if not todo:
        return texts
    path.parent.mkdir(parents=True, exist_ok=True)
    tokens: dict[str, list[int]] = {name: [] for name in todo}
    with path.open("a", encoding="utf-8") as file:
        for verdict in decode(todo.values(), stack.verifier(num_rows, drafting=False)):
            tokens[verdict.request_id].extend(verdict.token_ids)
            if verdict.finish_reason is not None:
                prompt_ids = todo[verdict.request_id].prompt_ids
                texts[prompt_ids] = tuple(tokens.pop(verdict.request_id))
                line = {"prompt_ids": prompt_ids, "response_ids": texts[prompt_ids]}
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
                file.flush()
                on_answer()
    return texts


def _read(path: Path) -> Texts:
    """The answers of a file; a last line that was cut off is removed from it."""
    if not path.exists():
        return {}
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        path.write_bytes(whole)
    rows = map(json.loads, whole.splitlines())
    return {tuple(row["prompt_ids"]): tuple(row["response_ids"]) for row in rows}
