"""What passes between the judge and the worker: JSON headers, and tensors as raw bytes.

Nothing is unpickled on either side. A message is one line of JSON on a pipe of its own (never the
candidate's standard output); its tensors lie one after the other in a file that the header names.
The reader rebuilds trees of tuples, lists, dicts, numbers and tensors, and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

_DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
}
LIMIT = 64 << 20  # bytes of one header


class WireError(Exception):
    """A message that is not of the agreed form."""


@dataclass(frozen=True)
class Foreign:
    """A value that the wire does not carry; only its type's name crosses."""

    kind: str


@dataclass(frozen=True)
class Layout:
    """How the tensor lay in the sender: strides, device, its exact type."""

    stride: tuple[int, ...]
    device: str
    kind: str


def write(stream: IO[bytes], message: dict[str, Any], values: Any, folder: Path, name: str) -> None:
    """Send a message with a tree of values."""
    path = folder / name
    with path.open("wb") as data:
        tree = _encode(values, data)
    line = json.dumps({"message": message, "tree": tree, "file": name}).encode()
    stream.write(line + b"\n")
    stream.flush()


def _encode(value: Any, data: IO[bytes]) -> Any:
    if isinstance(value, torch.Tensor):
        plain = value.detach().to("cpu").contiguous()
        name = str(plain.dtype).removeprefix("torch.")
        if name not in _DTYPES or plain.layout is not torch.strided:
            return {"foreign": f"a tensor of {plain.dtype}, {plain.layout}"}
        offset = data.tell()
        flat = plain.reshape(-1).view(torch.uint8) if plain.numel() else plain
        if plain.numel():
            data.write(flat.numpy().data)
        data.write(b"\0" * (-data.tell() % 64))
        stride = list(value.stride())
        return {
            "tensor": name,
            "shape": list(plain.shape),
            "offset": offset,
            "stride": stride,
            "device": value.device.type,
            "kind": type(value).__name__,
        }
    if type(value) in (tuple, list):
        return {type(value).__name__: [_encode(v, data) for v in value]}
    if type(value) is dict:
        return {"dict": [[_encode(k, data), _encode(v, data)] for k, v in value.items()]}
    if isinstance(value, (bool, int, str, type(None))):
        return {"value": value}
    if isinstance(value, float):
        return {"float": value.hex()}
    return {"foreign": type(value).__name__}


def read(
    stream: IO[bytes], folder: Path, laid: Callable[[torch.Tensor, Layout], None] | None = None
) -> tuple[dict[str, Any], Any]:
    """Receive a message and its tree; EOFError where the other side is gone.

    laid: is told how each tensor lay in the sender.
    """
    line = stream.readline(LIMIT)
    if not line.endswith(b"\n"):
        raise EOFError("the other side closed the pipe")
    try:
        header = json.loads(line)
        path = folder / os.path.basename(header["file"])
        size = path.stat().st_size
        storage = (
            torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
            if size
            else torch.empty(0, dtype=torch.uint8)
        )
        values = _decode(header["tree"], storage, laid)
        message = header["message"]
    except (KeyError, TypeError, ValueError, IndexError, OSError, RuntimeError) as error:
        raise WireError(f"a malformed message: {error}") from error
    if not isinstance(message, dict):
        raise WireError("a message without a header")
    return message, values


def _decode(tree: Any, storage: torch.Tensor, laid: Any) -> Any:
    ((kind, body),) = [(k, v) for k, v in tree.items() if k in _KINDS]
    if kind == "tensor":
        dtype, shape, offset = _DTYPES[body], [int(d) for d in tree["shape"]], int(tree["offset"])
        count = 1
        for d in shape:
            count *= d
        size = count * dtype.itemsize
        if offset < 0 or min(shape, default=1) < 0 or offset + size > storage.numel():
            raise WireError("a tensor beyond its file")
        if count == 0:
            tensor = torch.empty(shape, dtype=dtype)
        else:
            tensor = storage[offset : offset + size].view(dtype).view(shape)
        if laid is not None:
            stride = tuple(int(s) for s in tree["stride"])
            laid(tensor, Layout(stride, str(tree["device"]), str(tree["kind"])))
        return tensor
    if kind == "dict":
        return {_decode(k, storage, laid): _decode(v, storage, laid) for k, v in body}
    if kind in ("tuple", "list"):
        items = [_decode(v, storage, laid) for v in body]
        return tuple(items) if kind == "tuple" else items
    if kind == "float":
        return float.fromhex(body)
    if kind == "foreign":
        return Foreign(str(body))
    return body


_KINDS = ("tensor", "tuple", "list", "dict", "value", "float", "foreign")
