"""The drafter starts from the target's last layers: its context keys are the target's own."""

import torch

from dcoco_core.drafters.dflash.config import DFlashConfig
from dcoco_core.drafters.dflash.model import DFlashModel
from dcoco_core.target.interface import PackedRows
from dcoco_core.target.llama_config import LlamaConfig
from dcoco_core.target.loading import load_target
from dcoco_core.target.weights import CheckpointTensors
from dcoco_core.training.drafter_init import initialise_from_target
from tests.unit.training.tiny_folder import CONFIG, HIDDEN, LAYERS, MASK_ID, write_tiny_target


def test_context_keys_and_values_are_the_targets(tmp_path):
    folder = write_tiny_target(tmp_path)
    sizes = LlamaConfig.from_json(CONFIG)
    last_but_one = LAYERS - 2
    config = DFlashConfig(
        hidden_size=HIDDEN,
        intermediate_size=20,
        num_layers=1,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        vocab_size=sizes.vocab_size,
        block_size=4,
        mask_token_id=MASK_ID,
        target_layer_ids=(0, last_but_one),
        num_target_layers=LAYERS,
        shift_label=True,
        rms_norm_eps=sizes.norm_eps,
        rope_theta=1000.0,
    )
    target = load_target(folder)
    ids = torch.arange(4, 24)
    cache = target.new_cache(1, 32)
    taps = target.forward(ids, PackedRows((0,), (0,), (20,)), cache, (0, last_but_one)).taps
    model = DFlashModel(config, HIDDEN)
    tensors = CheckpointTensors(folder, dtype=torch.float32, device="cpu")
    initialise_from_target(model, sizes, tensors, taps)
    with torch.no_grad():
        (ours,) = model.context_keys_values(
            model.project(taps) @ model.context_weight().T, torch.arange(20)
        )
    keys, values = cache.view(LAYERS - 1, 0, 20)
    torch.testing.assert_close(ours.values, values, atol=1e-4, rtol=1e-4)
    # The norm gives every key the same length; directions are the target's.
    cosine = torch.nn.functional.cosine_similarity(ours.keys, keys, dim=-1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine), atol=1e-4, rtol=1e-4)
    lengths = keys.square().mean(-1).sqrt()
    assert abs(float(ours.keys.square().mean(-1).sqrt().mean() / lengths.mean()) - 1) < 0.05
