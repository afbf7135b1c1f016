"""Messages with every kind of field filled."""

import torch

from dcoco_core.types import ContextGap, Draft, DraftRequest, Lattice, RowHeader, SamplingParams


def header(name: str, corrector: str = "none", num_draft_tokens: int = 3) -> RowHeader:
    sampling = SamplingParams(0.7, 50, 0.9, seed=2**63 - 1, noise_key=2**63 - 1)
    return RowHeader(name, 2, 17, 5, num_draft_tokens, sampling, corrector, 9, 8)


HEADERS = (header("a"), header("b", "other"), header("c"))


def draft_request(dtype: torch.dtype = torch.bfloat16) -> DraftRequest:
    generator = torch.Generator().manual_seed(1)
    return DraftRequest(HEADERS, torch.randn((24, 6), generator=generator).to(dtype))


def lattice(dtype: torch.dtype = torch.bfloat16) -> Lattice:
    generator = torch.Generator().manual_seed(2)
    return Lattice(
        headers=HEADERS,
        candidate_ids=torch.randint(0, 49152, (3, 3, 4), generator=generator),
        candidate_logits=torch.randn((3, 3, 4), generator=generator),
        log_normalizer=torch.randn((3, 3), generator=generator),
        hidden=torch.randn((3, 3, 6), generator=generator).to(dtype),
        last_context=torch.randn((3, 6), generator=generator).to(dtype),
        gaps=(ContextGap("d", 1, 12),),
    )


def draft(*, is_sampled: bool) -> Draft:
    tokens = torch.arange(9).reshape(3, 3)
    if not is_sampled:
        return Draft(HEADERS, tokens)
    ids = torch.stack([tokens, tokens + 9], dim=2)
    probs = torch.tensor([0.25, 0.75]).expand(3, 3, 2)
    return Draft(HEADERS, tokens, ids, probs, (ContextGap("d", 1, 12),))
