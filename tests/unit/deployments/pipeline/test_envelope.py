"""Messages come out of an envelope as they went in, bit by bit."""

import pickle
import subprocess
import sys
from dataclasses import fields, replace

import pytest
import torch

from dcoco_core.types import Draft, DraftRequest, Lattice
from deployments.pipeline.envelope import (
    Envelope,
    RawTensor,
    decode_draft,
    decode_draft_request,
    decode_lattice,
    encode,
)
from tests.unit.deployments.pipeline import lattices

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def assert_identical(found: object, wanted: object) -> None:
    assert type(found) is type(wanted)
    for item in fields(wanted):  # type: ignore[arg-type]
        a, b = getattr(found, item.name), getattr(wanted, item.name)
        if isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert torch.equal(a.view(torch.uint8), b.contiguous().view(torch.uint8)), item.name
        else:
            assert a == b


def travelled(envelope: Envelope) -> Envelope:
    """As Serve sends it to another process."""
    copy = pickle.loads(pickle.dumps(envelope))
    assert isinstance(copy, Envelope)
    return copy


@pytest.mark.parametrize("dtype", DTYPES)
def test_draft_request(dtype: torch.dtype) -> None:
    message = lattices.draft_request(dtype)
    assert_identical(decode_draft_request(travelled(encode(message))), message)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lattice(dtype: torch.dtype) -> None:
    message = lattices.lattice(dtype)
    assert_identical(decode_lattice(travelled(encode(message))), message)


@pytest.mark.parametrize("is_sampled", [True, False])
def test_draft(is_sampled: bool) -> None:
    message = lattices.draft(is_sampled=is_sampled)
    assert_identical(decode_draft(travelled(encode(message))), message)


def test_special_values_and_views_survive() -> None:
    values = torch.tensor([[0.0, -0.0, float("inf")], [float("-inf"), float("nan"), 1e-45]])
    for context in (values, values.T, values[:, 1:], torch.empty((0, 6))):
        message = DraftRequest((), context)
        assert_identical(decode_draft_request(travelled(encode(message))), message)


def test_rows_without_proposals() -> None:
    message = Draft(lattices.HEADERS, torch.empty((3, 0), dtype=torch.int64))
    assert_identical(decode_draft(travelled(encode(message))), message)


def test_decoded_tensors_do_not_share_the_message() -> None:
    envelope = encode(lattices.draft_request(torch.float32))
    decode_draft_request(envelope).context.zero_()
    assert decode_draft_request(envelope).context.abs().sum() > 0


def test_no_tensor_is_pickled() -> None:
    message = encode(lattices.lattice())
    assert b"torch" not in pickle.dumps(message)
    tensors = (t for t in vars_of(lattices.lattice()) if isinstance(t, torch.Tensor))
    assert message.num_bytes == sum(tensor.nbytes for tensor in tensors)


def vars_of(message: Lattice) -> list[object]:
    return [getattr(message, item.name) for item in fields(message)]


def test_wrong_kinds_and_damaged_tensors_are_refused() -> None:
    envelope = encode(lattices.draft_request())
    with pytest.raises(ValueError, match="kind 'draft', got 'draft_request'"):
        decode_draft(envelope)
    short = replace(envelope, tensors={"context": RawTensor("bfloat16", (24, 6), b"123")})
    with pytest.raises(ValueError, match="'context': 3 bytes do not make"):
        decode_draft_request(short)
    strange = replace(envelope, tensors={"context": RawTensor("complex64", (1,), b"12345678")})
    with pytest.raises(ValueError, match="dtype 'complex64' is none of"):
        decode_draft_request(strange)


def test_forwarding_an_envelope_loads_no_torch() -> None:
    program = (
        "import sys, deployments.pipeline.envelope, deployments.pipeline.transport;"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_one_element_views_travel() -> None:
    """One row, one proposal: torch calls such a view contiguous although its stride is not 1."""
    lattice = lattices.lattice(torch.float32)
    ids = lattice.candidate_ids[:1, :1]
    message = Draft(headers=lattice.headers[:1], token_ids=ids[:, :, 0])
    assert message.token_ids.stride(1) != 1
    assert torch.equal(decode_draft(travelled(encode(message))).token_ids, message.token_ids)
