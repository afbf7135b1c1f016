"""The decoding loop, plain and speculative: verify, draft, correct, until every request ends.

One round of the loop is one round of block speculative decoding: the verifier runs the target
over every row's block and commits the longest correct prefix plus one token (Leviathan, Kalman,
Matias 2023, algorithm 1, for blocks of any length); the drafter proposes the next block from the
committed context (DFlash, arXiv 2602.06036); the corrector chooses among its candidates. Plain
decoding is the same loop with blocks of no proposals.

It sees Protocols only. The server runs the same stages, one process each, in
deployments/engine.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from dcoco_core.drafts import plain_draft
from dcoco_core.protocols import Corrector, Drafter, Verifier
from dcoco_core.types import Request, Verdict


def decode(
    requests: Iterable[Request],
    verifier: Verifier,
    drafter: Drafter | None = None,
    corrector: Corrector | None = None,
) -> Iterator[Verdict]:
    """Decodes `requests`, at most `verifier.num_free_slots` at a time, and yields every verdict.

    Without a drafter and corrector every request is decoded plainly. A consumer that stops early
    leaves no request open.
    """
    waiting = deque(requests)
    running: set[str] = set()
    draft = plain_draft()
    try:
        while waiting or running:
            while waiting and verifier.num_free_slots:
                request = waiting.popleft()
                verifier.open(request)
                running.add(request.request_id)
            outcome = verifier.step(draft)
            ended = {v.request_id for v in outcome.verdicts if v.finish_reason is not None}
            running -= ended
            yield from outcome.verdicts
            if drafter is None or corrector is None:
                draft = plain_draft(outcome.draft_request.headers)
            else:
                drafter.release(ended)
                draft = corrector.correct(drafter.draft(outcome.draft_request))
    finally:
        for request_id in running:
            verifier.close(request_id)
        if drafter is not None:
            drafter.release(running)


def collect(verdicts: Iterable[Verdict]) -> dict[str, tuple[int, ...]]:
    """The tokens of every request, by request id."""
    tokens: dict[str, list[int]] = {}
    for verdict in verdicts:
        tokens.setdefault(verdict.request_id, []).extend(verdict.token_ids)
    return {request_id: tuple(ids) for request_id, ids in tokens.items()}
