"""Checkpoints come back as they were saved, and refuse what they do not fit."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from dcoco_core.correctors import CORRECTORS, load_corrector
from dcoco_core.correctors.checkpoint import Belonging, embedding_fingerprint
from dcoco_core.correctors.dcoco.checkpoint import save_dcoco
from dcoco_core.correctors.trainable_catalog import TRAINABLE
from dcoco_core.errors import CheckpointError, ConfigError
from tests.unit.correctors.lattices import (
    GREEDY,
    REJECTION,
    corrector,
    probs_of,
    random_embedding,
    random_lattice,
    random_scorer,
)


@pytest.fixture
def folder(tmp_path):
    belonging = Belonging(embedding_fingerprint(random_embedding()), "drafter-a")
    save_dcoco(tmp_path, random_scorer(), belonging)
    return tmp_path


def load(folder, embedding=None, drafter="drafter-a"):
    embedding = random_embedding() if embedding is None else embedding
    return load_corrector("dcoco", folder, embedding=embedding, drafter_fingerprint=drafter)


def test_round_trip(folder):
    scorer = random_scorer()
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.copy_(parameter.bfloat16())
    expected = corrector(scorer).correct(random_lattice([GREEDY, REJECTION]))
    draft = load(folder).correct(random_lattice([GREEDY, REJECTION]))
    assert torch.equal(draft.token_ids, expected.token_ids)
    assert torch.equal(probs_of(draft), probs_of(expected))
    assert load(folder).num_candidates == scorer.config.num_candidates


def test_weights_are_stored_in_bf16_under_their_names(folder):
    tensors = load_file(folder / "model.safetensors")
    assert sorted(tensors) == [
        "candidate_proj.weight",
        "mlp_in.bias",
        "mlp_in.weight",
        "mlp_out.bias",
        "mlp_out.weight",
        "pair_proj.weight",
    ]
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["DCOCOCorrector"]


def test_the_fingerprint_does_not_depend_on_the_dtype():
    embedding = random_embedding()
    assert embedding_fingerprint(embedding) == embedding_fingerprint(embedding.bfloat16())
    assert embedding_fingerprint(embedding) != embedding_fingerprint(random_embedding(seed=9))


def test_a_drafter_is_compared_only_when_it_is_known(folder):
    load(folder, drafter=None)
    with pytest.raises(CheckpointError, match=r"drafter_fingerprint is drafter-a, but drafter-b"):
        load(folder, drafter="drafter-b")


def test_another_target_is_refused(folder):
    found, expected = (
        embedding_fingerprint(random_embedding()),
        embedding_fingerprint(random_embedding(seed=9)),
    )
    with pytest.raises(CheckpointError, match=rf"is {found}, but {expected} is needed"):
        load(folder, embedding=random_embedding(seed=9))


def edit(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["corrector"] |= changes
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidate_sise": 8}, "unknown option 'candidate_sise'. Did you mean 'candidate_size'"),
        ({"candidate_size": "8"}, "candidate_size must be a positive int"),
        ({"num_candidates": 0}, "num_candidates must be a positive int"),
        ({"add_base_logit": 1}, "add_base_logit must be true or false"),
        ({"hidden_size": 13}, "hidden_size is 13, but 12 is needed"),
        ({"mlp_size": 11}, r"mlp_in.bias is \(10,\), but \(11,\) is needed"),
    ],
)
def test_a_bad_option_is_named(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_missing_and_damaged_files_are_named(folder):
    with pytest.raises(CheckpointError, match="nowhere"):
        load(folder / "nowhere")
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    del tensors["mlp_in.bias"]
    save_file(tensors, weights)
    with pytest.raises(CheckpointError, match=r"mlp_in.bias is missing"):
        load(folder)
    weights.write_bytes(b"\0" * 10)
    with pytest.raises(CheckpointError, match=r"cannot read .*model.safetensors"):
        load(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*model.safetensors"):
        load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        load(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="no 'corrector' section"):
        load(folder)


def test_names():
    assert set(CORRECTORS) >= {"none", "dcoco", "dcoco-paper", "dflash2-selector", "lilicorr"}
    assert set(TRAINABLE) == set(CORRECTORS) - {"none"}
    with pytest.raises(ConfigError, match=r"unknown corrector 'dcoko'. Did you mean 'dcoco'"):
        load_corrector("dcoko", embedding=random_embedding())
    with pytest.raises(ConfigError, match="'dcoco' needs a checkpoint folder"):
        load_corrector("dcoco", embedding=random_embedding())


def test_a_folder_for_none_is_a_mistake(tmp_path):
    with pytest.raises(ConfigError, match="'none' has no weights"):
        load_corrector("none", tmp_path, embedding=random_embedding())
