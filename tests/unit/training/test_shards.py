"""Shards on disk: what is written is read, parts are apart, sizes are bounded."""

from dataclasses import replace

import pytest
import torch

from dcoco_core.errors import ConfigError
from dcoco_core.training.shards import (
    NUM_TOP,
    PARTS,
    SequenceInfo,
    ShardIndex,
    ShardReader,
    ShardWriter,
    part_of,
    recorded_prompts,
)

INDEX = ShardIndex("tiny", "abc", (1, 2), 4, 50, 6)


def prompt(number):
    return (1, number, number + 1)


def info(number):
    return SequenceInfo("s", 3, 7, 0.7, number % 2 == 0)


def tensors(number):
    generator = torch.Generator().manual_seed(number)
    return {
        "token_ids": torch.tensor((*prompt(number), 4, 5, 6, number)),
        "taps": torch.randn((7, 8), generator=generator),
        "hidden": torch.randn((7, 4), generator=generator),
        "top_ids": torch.randint(0, 50, (7, NUM_TOP), generator=generator),
        "top_log_probs": torch.randn((7, NUM_TOP), generator=generator),
    }


@pytest.fixture
def folder(tmp_path):
    writer = ShardWriter(tmp_path / "shards", INDEX, tokens_per_shard=70)
    for number in range(100):
        writer.add(info(number), **tensors(number))
    writer.flush()
    return tmp_path / "shards"


def test_round_trip_by_part(folder):
    seen = 0
    for part in PARTS:
        expected = [n for n in range(100) if part_of(prompt(n)) == part]
        reader = ShardReader(folder, part)
        assert reader.index == INDEX
        assert len(reader) == len(expected)
        for number, sequence in zip(expected, reader, strict=True):
            stored = tensors(number)
            assert sequence.info == info(number)
            assert sequence.token_ids.tolist() == stored["token_ids"].tolist()
            assert torch.equal(sequence.taps, stored["taps"].bfloat16())
            assert torch.equal(sequence.hidden, stored["hidden"].bfloat16())
            assert torch.equal(sequence.top_ids, stored["top_ids"].int())
            assert torch.equal(sequence.top_log_probs, stored["top_log_probs"])
        seen += len(reader)
    assert seen == 100


def test_shards_are_bounded(folder):
    sizes = [path.stat().st_size for path in folder.glob("drafter-*.safetensors")]
    assert len(sizes) > 5
    per_token = 4 + 2 * 8 + 2 * 4 + 8 * NUM_TOP
    assert max(sizes) < 77 * per_token + 2000


def test_a_second_writer_adds(folder):
    before = len(ShardReader(folder, "drafter"))
    writer = ShardWriter(folder, INDEX)
    writer.add(info(200), **tensors(200))
    assert recorded_prompts(folder) == {prompt(n) for n in range(100)}
    writer.flush()
    assert recorded_prompts(folder) == {prompt(n) for n in (*range(100), 200)}
    assert len(ShardReader(folder, "drafter")) == before + (part_of(prompt(200)) == "drafter")


def test_what_is_pending_is_all_that_an_interruption_costs(tmp_path):
    writer = ShardWriter(tmp_path, INDEX, tokens_per_shard=70)
    for number in range(25):
        writer.add(info(number), **tensors(number))
    del writer  # 20 sequences are on disk, 5 were pending
    assert recorded_prompts(tmp_path) == {prompt(n) for n in range(20)}


def test_parts_are_shares_of_the_prompts():
    parts = [part_of((5, n)) for n in range(4000)]
    assert 0.04 < parts.count("heldout") / 4000 < 0.08
    assert 0.13 < parts.count("corrector") / 4000 < 0.19
    assert part_of((5, 6)) == part_of((5, 6))


def test_folders_are_not_mixed(folder, tmp_path):
    with pytest.raises(ConfigError, match="of another target or of other blocks"):
        ShardWriter(folder, replace(INDEX, target_layer_ids=(0, 2)))
    with pytest.raises(ConfigError, match="no shards at"):
        ShardReader(tmp_path / "nowhere", "drafter")
    with pytest.raises(ConfigError, match="unknown part 'dev'"):
        ShardReader(folder, "dev")
