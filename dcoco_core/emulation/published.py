"""Published figures of Qwen3-8B with DFlash and its correctors, and what is derived from them.

Throughput: DFlash paper (arXiv 2602.06036), table 3: SGLang, one B200, MATH-500, temperature 0.
Acceptance lengths and speedups: LiLiCorr paper (arXiv 2608.20530): one H100, one client, MATH-500,
temperature 0, all correctors trained alike on blocks of 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

BLOCK_SIZE = 16
MAX_DRAFT_TOKENS = BLOCK_SIZE - 1
# Tokens per second by number of clients.
CLIENTS = (1, 4, 8, 16, 32)
PLAIN_TOKENS_PER_S = (230.0, 861.0, 1666.0, 3133.0, 5694.0)
DFLASH_TOKENS_PER_S = (1175.0, 3884.0, 7485.0, 12268.0, 16076.0)
# Of the same drafter, target and set (table 1 of the same paper, measured with Transformers).
DFLASH_ACCEPTANCE_LENGTH = 7.87


@dataclass(frozen=True, slots=True)
class PublishedCorrector:
    """Acceptance length and speedup over plain decoding, one client."""

    acceptance_length: float
    speedup: float


CORRECTORS = MappingProxyType(
    {
        "none": PublishedCorrector(7.909, 5.88),
        "domino": PublishedCorrector(8.976, 6.25),
        "dflash2": PublishedCorrector(8.999, 6.49),
        "dspark": PublishedCorrector(9.012, 6.15),
        "lilicorr": PublishedCorrector(9.064, 6.52),
    }
)


def corrector_share(name: str) -> float:
    """Time of a corrector as a share of the uncorrected round, one client.

    A round takes acceptance length / speedup rounds of plain decoding; what it takes more than the
    uncorrected one is the corrector's.
    """
    plain, corrected = CORRECTORS["none"], CORRECTORS[name]
    uncorrected_rounds = plain.acceptance_length / plain.speedup
    return corrected.acceptance_length / corrected.speedup / uncorrected_rounds - 1.0


def constant_rate(acceptance_length: float, num_draft_tokens: int) -> float:
    """The acceptance rate that, the same at every place, gives this acceptance length.

    Published tables give lengths only. A check on the shape, from the ablations of the DFlash
    paper: drafters of blocks of 16 reach 5.6 to 6.3 tokens, depending on their depth, and 5.1 when
    their blocks are cut to 8; the rate fitted to 6.33 says 4.93.

    Raises:
        ValueError: no rate gives that length.
    """
    if not 1.0 <= acceptance_length <= num_draft_tokens + 1:
        raise ValueError(
            f"acceptance_length must be 1 to {num_draft_tokens + 1}, got {acceptance_length}"
        )
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**place for place in range(num_draft_tokens + 1)) < acceptance_length:
            low = middle
        else:
            high = middle
    return (low + high) / 2
