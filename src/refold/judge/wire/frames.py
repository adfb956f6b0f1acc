"""Frames between parent and worker: a JSON header, then raw tensor bytes. Nothing is unpickled.

A frame is ``<u32 header bytes> <u32 blobs> <u64 blob bytes>*`` then the header and the blobs. The
receiver checks every size against the header and a limit before it allocates anything, so the
worst that a hostile worker can send is a wrong tensor or a frame that is refused. Where both sides
map a ring, large blobs pass through that.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import torch

from refold.judge.wire import plain, ring

DTYPES: dict[str, torch.dtype] = {
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
# A reference that has others is none that can be judged; a candidate's are told by their name.
_RARE = (
    *("complex32", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"),
    *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
_SENT = {**DTYPES, **{name: getattr(torch, name) for name in _RARE if hasattr(torch, name)}}
MOST_LEAD = 64  # elements between the beginning of a memory and that of a tensor in it
_MAX_HEADER = 8 << 20
_MAX_BLOBS = 100_000


class WireError(RuntimeError):
    """The other side sent something that is no frame of this protocol."""


class Peer:
    """One end of a connection.

    shared: where large tensors pass through. place: says of a large tensor's bytes on which device
    they are to be received; the CPU unless it does.
    """

    def __init__(
        self,
        sock: socket.socket,
        max_bytes: int = 1 << 40,
        shared: ring.Ring | None = None,
        place: Callable[[int], torch.device] | None = None,
    ) -> None:
        self.sock = sock
        self.max_bytes = max_bytes
        self.shared = shared
        self.place = place

    def send(self, message: Any) -> None:
        """Send a tree of plain values and tensors."""
        blobs: list[torch.Tensor] = []
        header = json.dumps(encode(message, blobs)).encode()
        sizes = [b.numel() for b in blobs]
        prefix = struct.pack(f"<II{len(sizes)}Q", len(header), len(blobs), *sizes)
        self.sock.sendall(prefix + header)
        for blob in blobs:
            if self.shared is not None and blob.numel() >= ring.LEAST:
                with _in_turns():
                    self.shared.put(self.sock, blob)
            elif blob.numel():
                self.sock.sendall(view_bytes(blob.cpu()))

    def receive(self) -> Any:
        """Receive one message.

        Raises:
            WireError: a frame that breaks the protocol.
            EOFError: the other side is gone.
            TimeoutError: by the socket's timeout.
        """
        header_size, count = struct.unpack("<II", self._exactly(8))
        if header_size > _MAX_HEADER or count > _MAX_BLOBS:
            raise WireError(f"header of {header_size} bytes, {count} blobs")
        sizes = struct.unpack(f"<{count}Q", self._exactly(8 * count))
        if sum(sizes) > self.max_bytes:
            raise WireError(f"{sum(sizes)} bytes of tensors; the limit is {self.max_bytes}")
        try:
            header = json.loads(self._exactly(header_size))
        except (ValueError, RecursionError) as error:
            raise WireError("header is no JSON") from error
        blobs = [self._blob(size) for size in sizes]
        try:
            return decode(header, blobs)
        except (KeyError, TypeError, ValueError, RuntimeError, IndexError, RecursionError) as error:
            raise WireError(f"malformed message: {type(error).__name__}: {error}") from error

    def _blob(self, size: int) -> torch.Tensor:
        large = self.shared is not None and size >= ring.LEAST
        device = self.place(size) if large and self.place is not None else None
        blob = torch.empty(size, dtype=torch.uint8, device=device)
        if self.shared is not None and large:
            with _in_turns():
                self.shared.take(self.sock, blob)
        elif size:
            self._into(view_bytes(blob))
        return blob

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        if size:
            self._into(memoryview(data))
        return bytes(data)

    def _into(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            got = self.sock.recv_into(view[done:])
            if not got:
                raise EOFError("the other side is gone")
            done += got


@contextlib.contextmanager
def _in_turns() -> Iterator[None]:
    try:
        yield
    except ring.RingError as error:
        raise WireError(str(error)) from error


def span(tensor: torch.Tensor) -> int:
    """Elements of storage from the first to the last that a strided tensor touches."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((s - 1) * st for s, st in steps)


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor's bytes, sharing its memory."""
    flat = tensor.detach().reshape(-1).contiguous()
    return flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8)


def view_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, without a copy."""
    flat: Any = tensor.detach().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy() if flat.numel() else b"")


def encode(value: Any, blobs: list[torch.Tensor]) -> Any:
    """A JSON value; tensors keep strides and storage offset, and their bytes go to ``blobs``."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach()
        if tensor.layout != torch.strided or str(tensor.dtype).removeprefix("torch.") not in _SENT:
            raise TypeError(f"expected tensors and plain values, came {unknown(tensor)}")
        window = torch.as_strided(tensor, (span(tensor),), (1,))
        blobs.append(raw(window))
        return {
            "t": len(blobs) - 1,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "lead": min(tensor.storage_offset(), MOST_LEAD),
        }
    if isinstance(value, torch.Size):
        return {"s": list(value)}
    if isinstance(value, tuple):
        return {"u": [encode(v, blobs) for v in value]}
    if isinstance(value, list):
        return {"l": [encode(v, blobs) for v in value]}
    if isinstance(value, dict):
        return {"d": [[_key(k), encode(v, blobs)] for k, v in value.items()]}
    sent = plain.encode(value)
    if sent is None:
        raise TypeError(f"expected tensors and plain values, came {type(value).__name__}")
    return sent


def _key(key: Any) -> Any:
    return key if isinstance(key, str) else encode(key, [])


def unknown(tree: Any) -> str:
    """What of a tree `encode` does not take; empty where it takes all."""
    if isinstance(tree, torch.Tensor):
        if tree.layout != torch.strided or str(tree.dtype).removeprefix("torch.") not in DTYPES:
            return f"a tensor of {tree.dtype}, {tree.layout}"
        return ""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return next((odd for odd in map(unknown, tree) if odd), "")
    if plain.encode(tree) is not None:
        return ""
    return f"{type(tree).__module__}.{type(tree).__qualname__}"


def named_tuple(tree: Any) -> str:
    """The type of a named tuple in a tree: it arrives as a plain one. Empty where there is none."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return f"a named tuple, {type(tree).__qualname__}"
    if isinstance(tree, list | tuple):
        return next((odd for odd in map(named_tuple, tree) if odd), "")
    return ""


def decode(value: Any, blobs: list[torch.Tensor]) -> Any:
    """The inverse of `encode`, with every size checked."""
    if "t" in value:
        return _tensor(value, blobs[int(value["t"])])
    if "l" in value:
        return [decode(v, blobs) for v in value["l"]]
    if "u" in value:
        return tuple(decode(v, blobs) for v in value["u"])
    if "d" in value:
        pairs = value["d"]
        return {k if isinstance(k, str) else decode(k, []): decode(v, blobs) for k, v in pairs}
    if "s" in value:
        return torch.Size(int(v) for v in value["s"])
    return plain.decode(value)


def _tensor(spec: dict[str, Any], blob: torch.Tensor) -> torch.Tensor:
    dtype = _SENT[spec["dtype"]]
    shape = [int(s) for s in spec["shape"]]
    stride = [int(s) for s in spec["stride"]]
    lead = int(spec["lead"])
    if len(shape) != len(stride) or min([0, lead, *shape, *stride]) < 0 or lead > 64:
        raise ValueError("bad shape")
    empty = math.prod(shape) == 0
    need = 0 if empty else 1 + sum((s - 1) * st for s, st in zip(shape, stride, strict=True))
    if blob.numel() != need * dtype.itemsize:
        raise ValueError(f"{blob.numel()} bytes where {need * dtype.itemsize} were declared")
    if empty:
        return torch.empty(shape, dtype=dtype)
    # A fresh allocation is aligned; the offset is kept so that misaligned inputs stay misaligned.
    if lead:
        storage = torch.zeros(lead + need, dtype=dtype, device=blob.device)
        storage[lead:] = blob.view(dtype)
    else:
        storage = blob.view(dtype)
    return torch.as_strided(storage, shape, stride, lead)
