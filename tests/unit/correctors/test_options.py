"""Design choices as text, and what is said about wrong ones."""

from __future__ import annotations

import json

import pytest
import torch

from dcoco_core.correctors import load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.dcoco.scorer import ScorerConfig
from dcoco_core.correctors.lilicorr.head import LiLiCorrConfig
from dcoco_core.correctors.options import from_values, parse_design, with_design
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.errors import ConfigError
from tests.unit.correctors.lattices import GREEDY, random_embedding, random_lattice
from tests.unit.correctors.untrained import random_corrector, source


def test_a_design_sets_fields_of_every_type():
    design = parse_design(["mlp_size=64", "pair_state=false", "candidate_reads=embedding"])
    config = with_design(ScorerConfig, {"hidden_size": 8, "num_candidates": 4}, design)
    assert config == ScorerConfig(8, 4, mlp_size=64, pair_state=False, candidate_reads="embedding")
    lilicorr = with_design(
        LiLiCorrConfig, {"hidden_size": 8, "block_size": 4}, {"lilicorr_logit_scale": "4"}
    )
    assert lilicorr.lilicorr_logit_scale == 4.0


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ({"mlp_sise": "8"}, "unknown option 'mlp_sise'. Did you mean 'mlp_size'"),
        ({"mlp_size": "many"}, "mlp_size must be a positive int, got 'many'"),
        ({"mlp_size": "0"}, "mlp_size must be a positive int, got 0"),
        ({"scalars": "no"}, "scalars must be true or false, got 'no'"),
        ({"activation": "tanh"}, "unknown activation 'tanh'.*Allowed: gelu, relu, silu"),
        ({"hidden_size": "8"}, "hidden_size follows from the run"),
    ],
)
def test_a_wrong_choice_is_named(design, message):
    with pytest.raises(ConfigError, match=f"design: {message}"):
        with_design(ScorerConfig, {"hidden_size": 8}, design)


@pytest.mark.parametrize("choice", ["mlp_size", "=8"])
def test_a_choice_without_a_value_is_refused(choice):
    with pytest.raises(ConfigError, match="choose each field once as field=value"):
        parse_design([choice])
    with pytest.raises(ConfigError, match="choose each field once"):
        parse_design(["mlp_size=8", "mlp_size=9"])


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), "8", True])
def test_a_number_has_to_be_positive(value):
    values = {"hidden_size": 8, "block_size": 4, "lilicorr_logit_scale": value}
    with pytest.raises(ConfigError, match="lilicorr_logit_scale must be a positive number"):
        from_values(LiLiCorrConfig, values)


def test_missing_fields_are_named_unless_they_have_a_default():
    with pytest.raises(ConfigError, match="missing options block_size, hidden_size"):
        from_values(LiLiCorrConfig, {})
    assert from_values(ScorerConfig, {"hidden_size": 8}) == ScorerConfig(8)


def test_the_published_form_has_no_choices():
    with pytest.raises(ConfigError, match="dcoco-paper is the published form"):
        TRAINABLE["dcoco-paper"](source("dcoco-paper", {"pair_state": "false"}))


def test_a_checkpoint_from_before_the_design_was_stored_loads_unchanged(tmp_path):
    corrector = random_corrector("dcoco")
    corrector.save(tmp_path, Belonging(embedding_fingerprint(random_embedding()), "drafter-a"))
    lattice = random_lattice([GREEDY] * 8)
    expected = load_corrector("dcoco", tmp_path, embedding=random_embedding()).correct(lattice)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for name in ("candidate_reads", "pair_state", "scalars", "activation"):
        del config["corrector"][name]
    path.write_text(json.dumps(config))
    draft = load_corrector("dcoco", tmp_path, embedding=random_embedding()).correct(lattice)
    assert torch.equal(draft.token_ids, expected.token_ids)
