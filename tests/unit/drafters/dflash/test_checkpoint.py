"""Published tensor names, the variants that load, and every way a checkpoint is refused."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from dcoco_core.drafters.catalog import DRAFTERS, PROJECTIONS, DrafterSource
from dcoco_core.drafters.dflash.checkpoint import (
    check_target,
    fingerprint_target,
    load_model,
    load_vocab_map,
    save_checkpoint,
)
from dcoco_core.drafters.dflash.context import DFlashContextProjection
from dcoco_core.drafters.dflash.drafter import DFlashDrafter, DrafterSettings
from dcoco_core.drafters.fingerprint import fingerprint_checkpoint
from dcoco_core.errors import CheckpointError, ConfigError
from tests.unit.drafters.dflash.networks import (
    CONFIG,
    HIDDEN,
    TAPS,
    SpecTarget,
    header,
    random_model,
    request,
)

PUBLISHED = {
    "fc.weight": [HIDDEN, TAPS * HIDDEN],
    "hidden_norm.weight": [HIDDEN],
    "norm.weight": [HIDDEN],
} | {
    f"layers.{i}.{name}.weight": shape
    for i in range(2)
    for name, shape in {
        "input_layernorm": [HIDDEN],
        "post_attention_layernorm": [HIDDEN],
        "self_attn.q_proj": [32, HIDDEN],
        "self_attn.k_proj": [16, HIDDEN],
        "self_attn.v_proj": [16, HIDDEN],
        "self_attn.o_proj": [HIDDEN, 32],
        "self_attn.q_norm": [8],
        "self_attn.k_norm": [8],
        "mlp.gate_proj": [48, HIDDEN],
        "mlp.up_proj": [48, HIDDEN],
        "mlp.down_proj": [HIDDEN, 48],
    }.items()
}
SETTINGS = DrafterSettings(num_candidates=4, max_positions=48, dtype=torch.float32)


@pytest.fixture
def folder(tmp_path):
    model = random_model()
    save_checkpoint(tmp_path, CONFIG, dict(model.named_parameters()))
    return tmp_path


def rewrite(folder, change):
    """Changes the stored tensors in place."""
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file(change(tensors), path)


def test_stored_names_shapes_and_dtype(folder):
    stored = load_file(folder / "model.safetensors")
    assert {name: list(t.shape) for name, t in stored.items()} == PUBLISHED
    assert {t.dtype for t in stored.values()} == {torch.bfloat16}


def test_round_trip(folder):
    loaded = load_model(folder, CONFIG, HIDDEN, torch.float32)
    for name, parameter in random_model().named_parameters():
        assert torch.equal(loaded.get_parameter(name), parameter.bfloat16().float()), name


def fused_qkv(tensors):
    for i in range(2):
        name = f"layers.{i}.self_attn."
        parts = [tensors.pop(f"{name}{kind}_proj.weight") for kind in "qkv"]
        tensors[f"{name}qkv_proj.weight"] = torch.cat(parts)
        parts = [tensors.pop(f"layers.{i}.mlp.{kind}_proj.weight") for kind in ("gate", "up")]
        tensors[f"layers.{i}.mlp.gate_up_proj.weight"] = torch.cat(parts)
    return tensors


def renamed(old, new):
    return lambda tensors: {
        (new + n.removeprefix(old) if n.startswith(old) else n): t for n, t in tensors.items()
    }


VARIANTS = {
    "prefix model.": lambda tensors: {"model." + n: t for n, t in tensors.items()},
    "fused projections": fused_qkv,
    "encoder.fc": renamed("fc.", "encoder.fc."),
    "encoder.output_norm_enc": renamed("hidden_norm.", "encoder.output_norm_enc."),
    "midlayer": renamed("layers.0.", "midlayer."),
    "bundled copies": lambda tensors: (
        tensors
        | {"embed_tokens.weight": torch.zeros(2, 2), "lm_head.weight": torch.zeros(2, 2)}
        | {"t2d": torch.zeros(3, dtype=torch.bool)}
    ),
}


@pytest.mark.parametrize("name", list(VARIANTS))
def test_variants_load_as_the_same_network(folder, name):
    expected = load_model(folder, CONFIG, HIDDEN, torch.float32)
    rewrite(folder, VARIANTS[name])
    loaded = load_model(folder, CONFIG, HIDDEN, torch.float32)
    for parameter, value in expected.named_parameters():
        assert torch.equal(loaded.get_parameter(parameter), value), parameter
    DFlashContextProjection.load(folder, SpecTarget())


def test_damaged_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        load_model(folder, CONFIG, HIDDEN, torch.float32)


def without(name):
    return lambda tensors: {n: t for n, t in tensors.items() if n != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("norm.weight"), "norm.weight is missing"),
        (lambda t: t | {"mystery": torch.zeros(1)}, "mystery is not a DFlash tensor"),
        (lambda t: t | {"norm.weight": torch.zeros(7)}, r"norm.weight is \[7\], expected \[32\]"),
        (lambda t: {"fc.weight": t["fc.weight"]}, r"and \d+ more"),
    ],
)
def test_wrong_tensors(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(CheckpointError, match=message):
        load_model(folder, CONFIG, HIDDEN, torch.float32)


def test_wrong_number_of_taps(folder):
    config = replace(CONFIG, target_layer_ids=(0, 1, 2))
    with pytest.raises(CheckpointError, match=r"fc.weight is \[32, 64\], expected \[32, 96\]"):
        load_model(folder, config, HIDDEN, torch.float32)
    save_checkpoint(folder, config, dict(random_model().named_parameters()))
    with pytest.raises(CheckpointError, match=r"fc.weight is \(32, 64\), the target needs"):
        DFlashContextProjection.load(folder, SpecTarget())


def test_no_weights_at_all(tmp_path):
    with pytest.raises(CheckpointError, match=r"no \*.safetensors"):
        load_model(tmp_path, CONFIG, HIDDEN, torch.float32)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"vocab_size": 100}, "vocabulary: drafter 96, target 100"),
        ({"hidden_size": 64}, r"hidden_size \(the head is shared\): drafter 32, target 64"),
        ({"num_layers": 6}, "number of target layers: drafter 4, target 6"),
    ],
)
def test_another_target_is_refused(spec, message):
    with pytest.raises(CheckpointError, match=message):
        check_target(CONFIG, SpecTarget(**spec))


def test_other_weights_are_refused():
    config = replace(
        CONFIG, target_name="tiny", target_fingerprint=fingerprint_target(SpecTarget())
    )
    check_target(config, SpecTarget())
    with pytest.raises(CheckpointError, match=r"made for tiny\): weights: drafter"):
        check_target(config, SpecTarget(seed=1))


def test_target_fingerprint_ignores_dtype():
    half = SpecTarget()
    half.embedding, half.lm_head = half.embedding.bfloat16(), half.lm_head.bfloat16()
    assert fingerprint_target(half) == fingerprint_target(SpecTarget())


def test_checkpoint_fingerprint_follows_the_weights(folder):
    before = fingerprint_checkpoint(folder)
    assert before == DFlashContextProjection.load(folder, SpecTarget()).fingerprint
    assert before == DFlashDrafter.load(folder, SpecTarget(), SETTINGS).fingerprint
    rewrite(folder, lambda t: t | {"norm.weight": t["norm.weight"] + 1})
    assert fingerprint_checkpoint(folder) != before


def test_draft_vocabulary_is_stored_as_offsets(folder):
    ids = torch.tensor([3, 4, 20, 21, 95])
    config = replace(CONFIG, draft_vocab_size=5)
    save_checkpoint(folder, config, dict(random_model().named_parameters()), ids)
    stored = load_file(folder / "model.safetensors")["d2t"]
    assert stored.tolist() == [3, 3, 18, 18, 91]
    mapped = load_vocab_map(folder, config)
    assert mapped is not None
    assert torch.equal(mapped, ids)
    lattice = DFlashDrafter.load(folder, SpecTarget(), SETTINGS).draft(request(header()))
    assert set(lattice.candidate_ids.flatten().tolist()) <= set(ids.tolist())


@pytest.mark.parametrize(
    ("offsets", "size", "message"),
    [
        ([0, 0], 3, r"d2t is \[2\], expected \[3\]"),
        ([0, 0, 200], 3, "does not map into"),
        ([0, -1, 0], 3, "does not map into"),
        (None, 3, "draft_vocab_size without the tensor d2t"),
    ],
)
def test_wrong_vocabulary_maps(folder, offsets, size, message):
    if offsets is not None:
        rewrite(folder, lambda t: t | {"d2t": torch.tensor(offsets)})
    with pytest.raises(CheckpointError, match=message):
        load_vocab_map(folder, replace(CONFIG, draft_vocab_size=size))


def test_projection_is_the_networks_own(folder):
    projection = DFlashContextProjection.load(folder, SpecTarget())
    taps = torch.randn((9, TAPS * HIDDEN), generator=torch.Generator().manual_seed(0))
    model = load_model(folder, CONFIG, HIDDEN, torch.float32)
    torch.testing.assert_close(projection(taps), model.project(taps))
    assert projection.target_layer_ids == (0, 2)


def test_catalog_loads_both_halves(folder):
    source = DrafterSource(folder, SpecTarget())
    drafter, projection = DRAFTERS["dflash"](source, SETTINGS), PROJECTIONS["dflash"](source)
    assert drafter.draft(request(header())).candidate_ids.shape == (1, 4, 4)
    assert projection(torch.zeros(2, TAPS * HIDDEN)).shape == (2, HIDDEN)
    with pytest.raises(ConfigError, match="Did you mean 'dflash'"):
        DRAFTERS["dflsh"]
