from dataclasses import replace

import torch

from dcoco_core.drafters.dflash.scoring import CandidateHead, top_candidates
from tests.unit.drafters.dflash.networks import CONFIG


def test_ties_go_to_the_lowest_id_also_at_the_boundary():
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0, 2.0], [0.0] * 6])
    values, indices = top_candidates(logits, 3)
    assert indices.tolist() == [[1, 3, 2], [0, 1, 2]]
    assert values.tolist() == [[3.0, 3.0, 2.0], [0.0] * 3]


def test_agrees_with_a_full_sort():
    logits = torch.randn((20, 300), generator=torch.Generator().manual_seed(0)).round(decimals=1)
    values, indices = top_candidates(logits, 16)
    sorted_values, order = logits.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(indices, order[:, :16])
    assert torch.equal(values, sorted_values[:, :16])


def test_bfloat16_candidates_are_ranked_in_float32():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn((400, 32), generator=generator).bfloat16()
    hidden = torch.randn((50, 32), generator=generator).bfloat16()
    rough = CandidateHead(weight, None, 8, CONFIG)(hidden)
    exact = CandidateHead(weight.float(), None, 8, CONFIG)(hidden)
    assert torch.equal(rough.ids, exact.ids)
    torch.testing.assert_close(rough.logits, exact.logits)
    torch.testing.assert_close(rough.log_normalizer, exact.log_normalizer, atol=0.1, rtol=0)


def test_multiplier_and_softcap():
    weight, hidden = torch.eye(32)[:8] * 100, torch.eye(32)[:2]
    config = replace(CONFIG, output_multiplier=0.5, final_logit_softcapping=10.0)
    scored = CandidateHead(weight, None, 2, config)(hidden)
    expected = 10 * torch.tanh(torch.tensor(5.0))
    assert scored.ids[:, 0].tolist() == [0, 1]
    torch.testing.assert_close(scored.logits[:, 0], expected.expand(2))
