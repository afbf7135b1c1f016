"""Envelopes as frames of a socket: one frame of JSON that describes, one frame per tensor.

What arrives is checked against what its header promises before anything looks at it, and tensors
are views of the frames they came in. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dcoco_core.errors import DcocoError
from dcoco_core.types import ContextGap, RowHeader, Verdict
from deployments.pipeline.envelope import Envelope, Kind, RawTensor

Frame: TypeAlias = bytes | memoryview

# Room for the context rows of a verifier's requests: 16 x 2,048 rows x 4,096 bfloat16 values are
# 256 MiB.
MAX_MESSAGE_BYTES = 512 * 2**20
_MAX_HEADER_BYTES = 16 * 2**20

_ITEM_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int64": 8,
    "int32": 4,
    "uint8": 1,
    "bool": 1,
}
# The tensors that every message of a kind has, and those that it may have as well.
_REQUIRED: dict[Kind, frozenset[str]] = {
    "draft_request": frozenset({"context"}),
    "round": frozenset({"context"}),
    "lattice": frozenset(
        {"candidate_ids", "candidate_logits", "log_normalizer", "hidden", "last_context"}
    ),
    "draft": frozenset({"token_ids"}),
}
_OPTIONAL: dict[Kind, frozenset[str]] = {"draft": frozenset({"candidate_ids", "draft_probs"})}


class WireError(DcocoError):
    """A message that is not what it says it is, or is too large."""


class _Tensor(BaseModel):
    """What the header says of one tensor frame."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str
    dtype: Literal["float32", "bfloat16", "float16", "int64", "int32", "uint8", "bool"]
    shape: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=8)]


class _Header(BaseModel):
    """The first frame. Values are checked by type; unknown keys are an error."""

    model_config = ConfigDict(strict=True, extra="forbid")

    version: Literal[1] = 1
    kind: Kind
    rows: tuple[RowHeader, ...] = ()
    gaps: tuple[ContextGap, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    request_ids: tuple[str, ...] = ()
    tensors: tuple[_Tensor, ...] = ()


def pack(envelope: Envelope) -> list[Frame]:
    """The frames of an envelope; tensors are not copied.

    Raises:
        WireError: it is larger than a receiver takes.
    """
    header = _Header.model_construct(
        kind=envelope.kind,
        rows=envelope.headers,
        gaps=envelope.gaps,
        verdicts=envelope.verdicts,
        request_ids=envelope.request_ids,
        tensors=tuple(
            _Tensor.model_construct(name=name, dtype=raw.dtype, shape=raw.shape)
            for name, raw in envelope.tensors.items()
        ),
    )
    frames: list[Frame] = [header.model_dump_json().encode()]
    frames += [raw.data for raw in envelope.tensors.values()]
    _check_size(frames, MAX_MESSAGE_BYTES)
    return frames


def unpack(frames: Sequence[Frame], max_bytes: int = MAX_MESSAGE_BYTES) -> Envelope:
    """The envelope that came as `frames`; its tensors are views of them.

    Raises:
        WireError: the frames are too large, or not what their header says.
    """
    if not frames:
        raise WireError("a message without a header")
    _check_size(frames, max_bytes)
    try:
        header = _Header.model_validate_json(bytes(frames[0]))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise WireError(f"header: {place}: {first['msg']}") from None
    _check_tensors(header, frames[1:])
    tensors = {
        tensor.name: RawTensor(tensor.dtype, tensor.shape, data)
        for tensor, data in zip(header.tensors, frames[1:], strict=True)
    }
    return Envelope(
        header.kind, header.rows, tensors, header.gaps, header.verdicts, header.request_ids
    )


def _check_size(frames: Sequence[Frame], max_bytes: int) -> None:
    num_bytes = sum(map(len, frames))
    if num_bytes > max_bytes or len(frames[0]) > _MAX_HEADER_BYTES:
        raise WireError(
            f"a message of {num_bytes} bytes with a header of {len(frames[0])}; "
            f"at most {max_bytes} and {_MAX_HEADER_BYTES} are possible"
        )


def _check_tensors(header: _Header, data: Sequence[Frame]) -> None:
    names = [tensor.name for tensor in header.tensors]
    required = _REQUIRED.get(header.kind, frozenset())
    allowed = required | _OPTIONAL.get(header.kind, frozenset())
    if len(set(names)) != len(names) or not required <= set(names) <= allowed:
        raise WireError(
            f"a {header.kind} with the tensors {names}; it has {sorted(required)}, "
            f"and perhaps {sorted(allowed - required)}"
        )
    if len(data) != len(names):
        raise WireError(f"{len(names)} tensors in the header, but {len(data)} frames after it")
    num_rows = len(header.rows)
    if header.kind in ("draft_request", "round"):
        num_rows = sum(row.num_context_rows for row in header.rows)
    for tensor, frame in zip(header.tensors, data, strict=True):
        wanted = prod(tensor.shape) * _ITEM_BYTES[tensor.dtype]
        if len(frame) != wanted:
            raise WireError(
                f"tensor {tensor.name!r}: {tensor.dtype} {tensor.shape} takes {wanted} bytes, "
                f"but its frame has {len(frame)}"
            )
        if tensor.shape[:1] != (num_rows,):
            raise WireError(
                f"tensor {tensor.name!r}: shape {tensor.shape}, but the header has {num_rows} rows"
            )
