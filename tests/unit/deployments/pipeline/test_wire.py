"""Messages come off the wire as they went onto it, and nothing that lies gets past it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dcoco_core.types import Draft, DraftRequest, FinishReason, Lattice, Round, Verdict
from deployments.pipeline import envelope as envelopes
from deployments.pipeline.envelope import DONE, PING, Envelope, RawTensor, encode
from deployments.pipeline.wire import Frame, WireError, pack, unpack
from tests.unit.deployments.pipeline import lattices
from tests.unit.deployments.pipeline.test_envelope import assert_identical

VERDICTS = (
    Verdict("a", 2, 18, (3, 4), 3, 1),
    Verdict("b", 0, 9, (7,), None, 0, FinishReason.STOP),
)


def received(frames: list[Frame]) -> list[Frame]:
    """As a socket hands them over: memory that nobody else has."""
    return [memoryview(bytearray(frame)) for frame in frames]


def travelled(message: DraftRequest | Lattice | Draft | Round) -> Envelope:
    return unpack(received(pack(encode(message))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_message_arrives_bit_by_bit(dtype: torch.dtype) -> None:
    request, lattice = lattices.draft_request(dtype), lattices.lattice(dtype)
    assert_identical(envelopes.decode_draft_request(travelled(request)), request)
    assert_identical(envelopes.decode_lattice(travelled(lattice)), lattice)
    for is_sampled in (True, False):
        draft = lattices.draft(is_sampled=is_sampled)
        assert_identical(envelopes.decode_draft(travelled(draft)), draft)


def test_a_round_arrives_with_its_verdicts() -> None:
    outcome = Round(VERDICTS, lattices.draft_request())
    found = envelopes.decode_round(travelled(outcome))
    assert found.verdicts == outcome.verdicts
    assert_identical(found.draft_request, outcome.draft_request)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_whole_numbers_and_truths(dtype: torch.dtype) -> None:
    context = torch.tensor([[0, 1]] * 24).to(dtype)
    request = DraftRequest(lattices.HEADERS, context)
    assert_identical(envelopes.decode_draft_request(travelled(request)), request)


def test_messages_without_tensors() -> None:
    release = Envelope("release", (), {}, request_ids=("a", "ü"))
    for envelope in (PING, DONE, release):
        assert unpack(received(pack(envelope))) == envelope


def test_a_tensor_is_a_view_of_the_frame_it_came_in() -> None:
    frames = received(pack(encode(lattices.draft_request(torch.float32))))
    context = envelopes.decode_draft_request(unpack(frames)).context
    context.zero_()
    assert not any(frames[1])


def test_frames_at_odd_addresses_make_whole_tensors() -> None:
    message = lattices.draft_request(torch.float32)
    frames = [memoryview(bytearray(b"x") + bytearray(f))[1:] for f in pack(encode(message))]
    found = envelopes.decode_draft_request(unpack(frames)).context
    assert found.data_ptr() % 4 == 0
    assert torch.equal(found, message.context)


def test_sending_does_not_copy_and_the_sender_may_go_on_writing() -> None:
    message = lattices.draft_request(torch.float32)
    envelope = encode(message)
    frames = pack(envelope)
    assert frames[1] is envelope.tensors["context"].data
    expected = message.context.clone()
    message.context.zero_()
    assert torch.equal(envelopes.decode_draft_request(unpack(frames)).context, expected)


Damage = Callable[[dict[str, Any]], None]


def changed(place: str, key: str, value: object) -> Damage:
    def damage(header: dict[str, Any]) -> None:
        inner = header[place][0] if place else header
        inner[key] = value

    return damage


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (changed("", "version", 2), "version"),
        (changed("", "kind", "lettuce"), "kind"),
        (changed("", "colour", "red"), "colour"),
        (changed("rows", "start", "17"), "rows.0.start"),
        (changed("rows", "generation", None), "rows.0.generation"),
        (changed("rows", "num_context_rows", 9), "the header has 25 rows"),
        (changed("tensors", "dtype", "complex64"), "tensors.0.dtype"),
        (changed("tensors", "dtype", "float32"), "takes 576 bytes, but its frame has 288"),
        (changed("tensors", "shape", [24, -6]), "tensors.0.shape"),
        (changed("tensors", "shape", [24, 2**62]), "takes"),
        (changed("tensors", "shape", [144]), "shape (144,), but the header has 24 rows"),
        (changed("tensors", "name", "contest"), "a draft_request with the tensors ['contest']"),
        (changed("", "tensors", []), "a draft_request with the tensors []"),
        (changed("", "kind", "lattice"), "a lattice with the tensors ['context']"),
        (changed("", "kind", "ping"), "a ping with the tensors ['context']"),
    ],
)
def test_a_header_that_lies_is_refused(damage: Damage, said: str) -> None:
    header, context = pack(encode(lattices.draft_request()))
    described = json.loads(bytes(header))
    damage(described)
    with pytest.raises(WireError) as refusal:
        unpack([json.dumps(described).encode(), context])
    assert said in str(refusal.value)


def test_frames_that_are_missing_or_too_many() -> None:
    header, context = pack(encode(lattices.draft_request()))
    with pytest.raises(WireError, match="without a header"):
        unpack([])
    with pytest.raises(WireError, match="1 tensors in the header, but 0 frames"):
        unpack([header])
    with pytest.raises(WireError, match="1 tensors in the header, but 2 frames"):
        unpack([header, context, context])
    for nonsense in (b"", b"{", b"\xff\x00", b"[1]"):
        with pytest.raises(WireError, match="header: "):
            unpack([nonsense, context])


def test_too_large_a_message_is_refused_before_it_is_read() -> None:
    frames = pack(encode(lattices.draft_request()))
    with pytest.raises(WireError, match="at most 100 and"):
        unpack(frames, max_bytes=100)


def test_too_large_a_message_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.pipeline.wire.MAX_MESSAGE_BYTES", 100)
    raw = RawTensor("uint8", (1000,), bytes(1000))
    with pytest.raises(WireError, match="a message of"):
        pack(Envelope("draft_request", (), {"context": raw}))
