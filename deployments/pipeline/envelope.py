"""Messages between stages as plain values: header fields, and tensors as raw bytes.

An envelope carries a whole batch of rows, so the number of messages in a round does not depend on
the number of rows. Tensors travel as their bytes with dtype name and shape, never pickled. A
process that has not loaded torch gets NumPy arrays out of them (dcoco_core/arrays.py), so those
that forward or emulate need none. How an envelope becomes frames of a socket is in
`pipeline/wire.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dcoco_core.arrays import as_array, as_tensor, is_torch_loaded
from dcoco_core.types import ContextGap, Draft, DraftRequest, Lattice, Round, RowHeader, Verdict

if TYPE_CHECKING:
    import torch

# "ping" and "done" carry nothing: is the stage there, and: it is finished with what was asked.
Kind = Literal["draft_request", "lattice", "draft", "round", "release", "ping", "done"]


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor's bytes in row-major order; `dtype` is torch's name without the prefix.

    Memory that is read-only may have other readers; a decoded tensor shares the rest.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    def __reduce__(self) -> tuple[Any, ...]:
        # A view of memory cannot travel through a Serve handle.
        return RawTensor, (self.dtype, self.shape, bytes(self.data))


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message of the ring: the rows it is about and the tensors that belong to them."""

    kind: Kind
    headers: tuple[RowHeader, ...]
    tensors: dict[str, RawTensor]
    gaps: tuple[ContextGap, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    request_ids: tuple[str, ...] = ()  # of a release

    @property
    def num_bytes(self) -> int:
        """Bytes of tensor payload."""
        return sum(len(tensor.data) for tensor in self.tensors.values())


# What NumPy has of the types that tensors travel in.
_ARRAY_DTYPES = ("bool", "float16", "float32", "int32", "int64", "uint8")

PING = Envelope("ping", (), {})
DONE = Envelope("done", (), {})


def encode(message: DraftRequest | Lattice | Draft | Round) -> Envelope:
    """Any message of the ring as an envelope; `decode_*` of its kind gives it back bit by bit."""
    if isinstance(message, DraftRequest):
        return Envelope("draft_request", message.headers, {"context": _to_raw(message.context)})
    if isinstance(message, Round):
        request = message.draft_request
        raw = {"context": _to_raw(request.context)}
        return Envelope("round", request.headers, raw, verdicts=message.verdicts)
    if isinstance(message, Lattice):
        tensors = {
            "candidate_ids": message.candidate_ids,
            "candidate_logits": message.candidate_logits,
            "log_normalizer": message.log_normalizer,
            "hidden": message.hidden,
            "last_context": message.last_context,
        }
        raw = {name: _to_raw(tensor) for name, tensor in tensors.items()}
        return Envelope("lattice", message.headers, raw, message.gaps)
    optional = {
        "token_ids": message.token_ids,
        "candidate_ids": message.candidate_ids,
        "draft_probs": message.draft_probs,
    }
    raw = {name: _to_raw(tensor) for name, tensor in optional.items() if tensor is not None}
    return Envelope("draft", message.headers, raw, message.gaps)


def decode_draft_request(envelope: Envelope) -> DraftRequest:
    """Raises ValueError for an envelope of another kind, here and in the three below."""
    tensors = _tensors(envelope, "draft_request")
    return DraftRequest(envelope.headers, tensors["context"])


def decode_round(envelope: Envelope) -> Round:
    """See decode_draft_request."""
    tensors = _tensors(envelope, "round")
    return Round(envelope.verdicts, DraftRequest(envelope.headers, tensors["context"]))


def decode_lattice(envelope: Envelope) -> Lattice:
    """See decode_draft_request."""
    tensors = _tensors(envelope, "lattice")
    return Lattice(
        headers=envelope.headers,
        candidate_ids=tensors["candidate_ids"],
        candidate_logits=tensors["candidate_logits"],
        log_normalizer=tensors["log_normalizer"],
        hidden=tensors["hidden"],
        last_context=tensors["last_context"],
        gaps=envelope.gaps,
    )


def decode_draft(envelope: Envelope) -> Draft:
    """See decode_draft_request."""
    tensors = _tensors(envelope, "draft")
    return Draft(
        headers=envelope.headers,
        token_ids=tensors["token_ids"],
        candidate_ids=tensors.get("candidate_ids"),
        draft_probs=tensors.get("draft_probs"),
        gaps=envelope.gaps,
    )


def _tensors(envelope: Envelope, kind: Kind) -> dict[str, torch.Tensor]:
    if envelope.kind != kind:
        raise ValueError(f"expected an envelope of kind {kind!r}, got {envelope.kind!r}")
    return {name: _from_raw(name, raw) for name, raw in envelope.tensors.items()}


def _to_raw(tensor: torch.Tensor) -> RawTensor:
    array = as_array(tensor)
    if array is not None:
        own = np.array(array, order="C")  # the sender may go on writing to its array
        data = own.reshape(-1).view(np.uint8).data.toreadonly()
        return RawTensor(str(array.dtype), tuple(array.shape), data)
    import torch

    # Not contiguous(): a view with one element passes for contiguous whatever its stride is, and
    # view() then refuses it. The copy is also what lets the sender go on writing to its tensor.
    flat = tensor.detach().to("cpu").reshape(-1).clone(memory_format=torch.contiguous_format)
    return RawTensor(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        data=flat.view(torch.uint8).numpy().data.toreadonly(),
    )


def _from_raw(name: str, raw: RawTensor) -> torch.Tensor:
    if not is_torch_loaded():
        return as_tensor(_to_array(name, raw))
    import torch

    dtypes = {str(dtype).removeprefix("torch."): dtype for dtype in _dtypes()}
    if raw.dtype not in dtypes:
        raise ValueError(f"tensor {name!r}: dtype {raw.dtype!r} is none of {sorted(dtypes)}")
    dtype = dtypes[raw.dtype]
    _check_size(name, raw, dtype.itemsize)
    if not raw.data:
        return torch.empty(raw.shape, dtype=dtype)
    data = memoryview(raw.data)
    # torch warns about (and could write to) memory that is read-only.
    flat = torch.frombuffer(bytearray(data) if data.readonly else data, dtype=dtype)
    # What a socket received may lie at any address; kernels want values at multiples of their size.
    is_aligned = flat.data_ptr() % dtype.itemsize == 0
    return (flat if is_aligned else flat.clone()).reshape(raw.shape)


def _to_array(name: str, raw: RawTensor) -> npt.NDArray[Any]:
    if raw.dtype not in _ARRAY_DTYPES:
        raise ValueError(f"array {name!r}: dtype {raw.dtype!r} is none of {_ARRAY_DTYPES}")
    dtype = np.dtype(raw.dtype)
    _check_size(name, raw, dtype.itemsize)
    return np.frombuffer(raw.data, dtype=dtype).reshape(raw.shape)


def _check_size(name: str, raw: RawTensor, item_bytes: int) -> None:
    if len(raw.data) != prod(raw.shape) * item_bytes:
        raise ValueError(
            f"tensor {name!r}: {len(raw.data)} bytes do not make {raw.dtype} {raw.shape}"
        )


def _dtypes() -> tuple[torch.dtype, ...]:
    import torch

    floats = (torch.float32, torch.bfloat16, torch.float16)
    return (*floats, torch.int64, torch.int32, torch.uint8, torch.bool)
