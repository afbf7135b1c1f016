"""Fits the profile `b200-qwen3-8b` to published throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dcoco_core.emulation import published
from dcoco_core.emulation.profile import Cost, Loop, Profile, Source
from dcoco_core.planning.costs import StageCost, non_negative_least_squares
from dcoco_core.planning.rounds import Plan, RoundCosts, round_seconds

NAME = "b200-qwen3-8b"
DRAFT_SHARES = (0.15, 0.25, 0.35)
USUAL_SHARE = 0.25

# DSpark's paper gives 0.2 to 1.3 % of a round for its captured serial loop at batch 128.
_CAPTURED_SHARE = 0.013
# DCOCO's model card says "a few percent" of the drafting cycle.
_DCOCO_SHARE = 0.03
# A pair scorer does about 0.5 GMAC a row and block beside the drafter's 17.
_SCORER_WORK = 0.03


@dataclass(frozen=True, slots=True)
class FittedRound:
    """One row of the published table: milliseconds of a round as published and as fitted."""

    num_clients: int
    num_draft_tokens: int
    published_ms: float
    fitted_ms: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.fitted_ms / self.published_ms - 1.0


@dataclass(frozen=True, slots=True)
class Fit:
    """Costs under one assumption about the drafter's share of a round."""

    draft_share: float
    verifier: StageCost
    drafter: StageCost
    rounds: tuple[FittedRound, ...]

    @property
    def worst_error(self) -> float:
        """The largest relative error, without its sign."""
        return max(abs(row.error) for row in self.rounds)

    @property
    def mean_error(self) -> float:
        """The mean of the relative errors, without their signs."""
        return sum(abs(row.error) for row in self.rounds) / len(self.rounds)


def fit_published(draft_share: float) -> Fit:
    """Fits verifier and drafter.

    The table gives whole rounds. Plain rounds are the verifier's; of a speculative round,
    `draft_share` is taken as the drafter's at every load. All rows of a round have one length, so
    rows and tokens of the drafter cannot be told apart and its cost is put on the tokens.

    Raises:
        ValueError: the share is not between 0 and 1.
    """
    if not 0.0 < draft_share < 1.0:
        raise ValueError(f"draft_share must be between 0 and 1, got {draft_share}")
    length = published.MAX_DRAFT_TOKENS
    plain_s = _round_seconds(1.0, published.PLAIN_TOKENS_PER_S)
    drafted_s = _round_seconds(published.DFLASH_ACCEPTANCE_LENGTH, published.DFLASH_TOKENS_PER_S)
    batches = [(n, n) for n in published.CLIENTS]
    blocks = [(n, n * (length + 1)) for n in published.CLIENTS]
    verify_s = [seconds * (1 - draft_share) for seconds in drafted_s]
    verifier = _fit_stage([*batches, *blocks], [*plain_s, *verify_s])
    drafter = _fit_stage(
        [(0, tokens) for _, tokens in blocks], [seconds * draft_share for seconds in drafted_s]
    )
    costs = RoundCosts(verifier, drafter)
    rounds = [
        FittedRound(n, plan.num_draft_tokens, seconds * 1e3, round_seconds(costs, plan, n) * 1e3)
        for plan, all_seconds in ((Plan(0), plain_s), (Plan(length), drafted_s))
        for n, seconds in zip(published.CLIENTS, all_seconds, strict=True)
    ]
    return Fit(draft_share, verifier, drafter, tuple(rounds))


def profile_of(fit: Fit) -> Profile:
    """The profile of a fit, corrector costs included, each with its source."""
    share = f"{fit.draft_share:.0%} of a speculative round assumed to be the drafter's"
    errors = f"worst error {fit.worst_error:.1%}, mean {fit.mean_error:.1%}"
    name = NAME if fit.draft_share == USUAL_SHARE else f"{NAME}-draft{fit.draft_share * 100:.0f}"
    return Profile(
        name=name,
        about=(
            "Qwen3-8B, DFlash with blocks of 16, one B200 each, fitted to the throughput of "
            f"MATH-500 in arXiv 2602.06036 table 3; {share}; {errors}"
        ),
        max_draft_tokens=published.MAX_DRAFT_TOKENS,
        verifier=_cost(fit.verifier, Source.PUBLISHED, f"fitted to published sums; {share}"),
        drafter=_cost(
            fit.drafter, Source.ASSUMED, f"{share}; rows and tokens cannot be told apart"
        ),
        correctors=_correctors(fit),
    )


def _correctors(fit: Fit) -> dict[str, dict[Loop, Cost]]:
    costs = RoundCosts(fit.verifier, fit.drafter)
    round_s = round_seconds(costs, Plan(published.MAX_DRAFT_TOKENS), 1)
    token_s = fit.drafter.token_s * _SCORER_WORK

    def parallel(share: float, source: Source, note: str) -> dict[Loop, Cost]:
        note += "; per token: 3 % of the drafter's, assumed"
        return {Loop.PARALLEL: _cost(StageCost(share * round_s, 0.0, token_s), source, note)}

    def sequential(name: str, captured: Source, note: str) -> dict[Loop, Cost]:
        share = published.corrector_share(name)
        slow = f"{share:.1%} of a round, from acceptance and speedup in arXiv 2608.20530"
        return {
            Loop.CAPTURED: _cost(StageCost(_CAPTURED_SHARE * round_s), captured, note),
            Loop.UNCAPTURED: _cost(
                StageCost(share * round_s),
                Source.PUBLISHED,
                f"{slow}; that its loop was not captured is assumed",
            ),
        }

    derived = "{:.1%} of a round, from acceptance and speedup in arXiv 2608.20530"
    captured_note = "1.3 % of a round, the upper end of what arXiv 2607.05147 gives"
    return {
        "none": {Loop.PARALLEL: _cost(StageCost(), Source.PUBLISHED, "there is no corrector")},
        "dcoco": parallel(
            _DCOCO_SHARE,
            Source.ASSUMED,
            "3 % of a round, where the model card says a few percent of the drafting cycle",
        ),
        **{
            name: parallel(
                published.corrector_share(name),
                Source.PUBLISHED,
                derived.format(published.corrector_share(name)),
            )
            for name in ("dflash2", "lilicorr")
        },
        "dspark": sequential("dspark", Source.PUBLISHED, captured_note),
        "domino": sequential(
            "domino", Source.ASSUMED, "like DSpark's captured loop; nothing is published"
        ),
    }


def _round_seconds(tokens_per_row: float, tokens_per_s: Sequence[float]) -> list[float]:
    """Every client commits so many tokens a round."""
    return [
        n * tokens_per_row / rate for n, rate in zip(published.CLIENTS, tokens_per_s, strict=True)
    ]


def _fit_stage(batches: Sequence[tuple[int, int]], seconds: Sequence[float]) -> StageCost:
    """Least squares of relative errors; no coefficient for rows where all batches have 0."""
    features = np.array([(1.0, *batch) for batch in batches]) / np.array(seconds)[:, None]
    used = np.flatnonzero(features.any(axis=0))
    part = features[:, used]
    solution = np.zeros(3)
    solution[used] = non_negative_least_squares(part.T @ part, part.sum(axis=0))
    return StageCost(*solution.tolist())


def _cost(cost: StageCost, source: Source, note: str) -> Cost:
    # Six digits are more than the table has and keep the file readable.
    fixed_ms, row_ms, token_ms = (
        round(seconds * 1e3, 6) for seconds in (cost.fixed_s, cost.row_s, cost.token_s)
    )
    return Cost(fixed_ms=fixed_ms, row_ms=row_ms, token_ms=token_ms, source=source, note=note)
