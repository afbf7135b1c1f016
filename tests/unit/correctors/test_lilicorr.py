"""LiLiCorr: its published tensors, and its computation against torch's own attention."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.lilicorr.head import LiLiCorr, LiLiCorrConfig
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.errors import CheckpointError, ConfigError
from tests.unit.correctors.lattices import GREEDY, random_embedding, random_lattice
from tests.unit.correctors.untrained import inference, random_corrector, source

BELONGING = Belonging(embedding_fingerprint(random_embedding()), "drafter-a")
D, H, F_DIM, HEADS, SLOTS, K = 8, 12, 6, 2, 6, 5


def test_names_and_shapes_are_the_published_ones(tmp_path):
    random_corrector("lilicorr").save(tmp_path, BELONGING)
    tensors = load_file(tmp_path / "model.safetensors")
    layer = {
        "attn_norm.weight": (D,),
        "attn.in_proj_weight": (3 * D, D),
        "attn.in_proj_bias": (3 * D,),
        "attn.out_proj.weight": (D, D),
        "attn.out_proj.bias": (D,),
        "mlp_norm.weight": (D,),
        "mlp.0.weight": (2 * D, D),
        "mlp.0.bias": (2 * D,),
        "mlp.2.weight": (D, 2 * D),
        "mlp.2.bias": (D,),
    }
    linears = {
        "token_proj": (D, H),
        "pass_hidden_proj": (D, H),
        "feature_mlp.1": (D, 5),
        "feature_mlp.3": (D, D),
        "context_proj": (D, H),
        "factor_input_proj": (D, 3 * D),
        "out_head": (F_DIM, D),
        "in_head": (F_DIM, D),
        "anchor_out_head": (F_DIM, D),
    }
    expected: dict[str, tuple[int, ...]] = {
        "feature_mlp.0.weight": (5,),
        "feature_mlp.0.bias": (5,),
        "slot_embedding": (1, 1, SLOTS, 1, D),
        "rank_embedding": (1, 1, 1, K, D),
        "relative_slot_bias": (HEADS, 2 * (SLOTS + 1) - 1),
        "same_slot_bias": (HEADS,),
        "output_norm.weight": (D,),
        "anchor_norm.weight": (D,),
    }
    expected |= {f"layers.{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
    expected |= {f"{name}.weight": shape for name, shape in linears.items()}
    expected |= {f"{name}.bias": shape[:1] for name, shape in linears.items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert found == {f"lilicorr.{name}": shape for name, shape in expected.items()}
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    options = json.loads((tmp_path / "config.json").read_text())["corrector"]
    published = ["candidate_topk", "hidden_size", "num_layers", "num_heads"]
    published += ["mlp_ratio", "factor_dim", "vector_eps", "logit_scale"]
    assert {name for name in options if name.startswith("lilicorr_")} == {
        f"lilicorr_{name}" for name in published
    }


def test_a_head_as_wide_as_the_target_projects_no_tokens():
    head = LiLiCorr(LiLiCorrConfig(16, 8, lilicorr_hidden_size=16)).lilicorr
    assert isinstance(head.token_proj, nn.Identity)
    assert not any(name.startswith("token_proj") for name in head.state_dict())


@torch.no_grad()
def test_scores_equal_a_plain_reading_of_the_paper():
    """Per row, with nn.MultiheadAttention and no batching, masks or shared work."""
    trainable = random_corrector("lilicorr")
    head = trainable.module.lilicorr
    assert isinstance(head, nn.Module)
    w: dict[str, torch.Tensor] = dict(head.state_dict())

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        scale = w[f"{name}.weight"] / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        return torch.mul(x, scale)

    lattice, embedding = random_lattice([GREEDY] * 2, num_positions=4), random_embedding()
    pairs = inference(trainable).pair_scores(lattice)
    slot = torch.arange(4).repeat_interleave(K)
    apart = slot[:, None] - slot[None]
    bias = w["relative_slot_bias"][:, apart + SLOTS]
    bias = bias + (apart == 0) * w["same_slot_bias"][:, None, None]
    for r in range(2):
        lp = lattice.candidate_logits[r] - lattice.log_normalizer[r, :, None]
        rank = (torch.arange(K) / (K - 1)).expand(4, K)
        first = (torch.arange(K) == 0).float().expand(4, K)
        features = torch.stack([lp, lp.exp(), lp - lp[:, :1], rank, first], -1)
        features = F.layer_norm(features, (5,), w["feature_mlp.0.weight"], w["feature_mlp.0.bias"])
        x = linear("token_proj", embedding[lattice.candidate_ids[r]])
        x = x + linear("pass_hidden_proj", lattice.hidden[r])[:, None]
        x = x + linear("feature_mlp.3", F.silu(linear("feature_mlp.1", features)))
        x = (x + w["slot_embedding"][0, 0, :4] + w["rank_embedding"][0, 0]).flatten(0, 1)
        for i in range(2):
            attention = nn.MultiheadAttention(D, HEADS, batch_first=True)
            prefix = f"layers.{i}.attn."
            attention.load_state_dict(
                {n.removeprefix(prefix): t for n, t in w.items() if n.startswith(prefix)}
            )
            y = norm(f"layers.{i}.attn_norm", x)[None]
            x = x + attention(y, y, y, attn_mask=bias, need_weights=False)[0][0]
            inner = F.silu(linear(f"layers.{i}.mlp.0", norm(f"layers.{i}.mlp_norm", x)))
            x = x + linear(f"layers.{i}.mlp.2", inner)
        x = norm("output_norm", x).view(4, K, D)
        a = norm("anchor_norm", linear("context_proj", lattice.last_context[r]))
        joined = torch.cat([x, a.expand_as(x), x * a], -1)
        joined = F.silu(linear("factor_input_proj", joined))
        outgoing = F.normalize(linear("out_head", joined), dim=-1)
        incoming = F.normalize(linear("in_head", joined), dim=-1)
        start = F.normalize(linear("anchor_out_head", a), dim=-1)
        torch.testing.assert_close(pairs.first[r], 8.0 * incoming[0] @ start)
        for t in range(1, 4):
            expected = 8.0 * outgoing[t - 1] @ incoming[t].T
            torch.testing.assert_close(pairs.pairs[r, t - 1], expected, atol=1e-5, rtol=1e-4)


def test_blocks_longer_than_the_trained_ones_are_corrected_too():
    corrector = inference(random_corrector("lilicorr"))
    longer = random_lattice([GREEDY] * 3, num_positions=2 * SLOTS)
    assert corrector.correct(longer).token_ids.shape == (3, 2 * SLOTS)


def test_sizes_that_do_not_go_together_are_refused(tmp_path):
    design = {"lilicorr_num_heads": "3"}
    with pytest.raises(ConfigError, match="lilicorr_hidden_size is 8, no multiple of"):
        TRAINABLE["lilicorr"](source("lilicorr", design))
    random_corrector("lilicorr").save(tmp_path, BELONGING)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["corrector"]["lilicorr_num_heads"] = 3
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="no multiple of lilicorr_num_heads, 3"):
        load_corrector("lilicorr", tmp_path, embedding=random_embedding())


def test_the_default_size_keeps_the_published_proportion():
    config = LiLiCorrConfig(576, 8)
    with torch.device("meta"):
        module = LiLiCorr(config)
    assert sum(p.numel() for p in module.parameters()) == 605_386
    assert dataclasses.asdict(config)["lilicorr_logit_scale"] == 8.0
