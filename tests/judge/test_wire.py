"""What passes between the judge and its workers: frames and the ring of shared memory."""

from __future__ import annotations

import json
import socket
import struct
import threading

import pytest
import torch

from refold.judge.wire import frames, ring


def pair() -> tuple[frames.Peer, frames.Peer]:
    a, b = socket.socketpair()
    b.settimeout(5)
    return frames.Peer(a), frames.Peer(b, max_bytes=1 << 20)


def test_wire_keeps_values_strides_and_offset() -> None:
    a, b = pair()
    base = torch.arange(60, dtype=torch.float32)
    odd = base[1:].as_strided((3, 4), (1, 5), 1)
    message = {
        "plain": [None, True, 3, 2.5, "text", (1, [2])],
        "odd": odd,
        "row": torch.ones(1, 4).expand(3, 4),
        "empty": torch.empty(0, 5, dtype=torch.int64),
        "scalar": torch.tensor(2.0, dtype=torch.bfloat16),
        "type": torch.float16,
    }
    a.send(message)
    came = b.receive()
    assert came["plain"] == message["plain"]
    assert came["type"] is torch.float16
    for name in ("odd", "row", "empty", "scalar"):
        assert torch.equal(came[name], message[name])
        assert came[name].stride() == message[name].stride()
    assert came["odd"].storage_offset() == 1


@pytest.mark.parametrize("dtype", ["complex32", "uint16", "float8_e5m2"])
def test_types_that_no_reference_may_have_arrive(dtype: str) -> None:
    a, b = pair()
    there = torch.arange(1, 9, dtype=torch.uint8).view(getattr(torch, dtype))
    a.send(there)
    came = b.receive()
    assert came.dtype is there.dtype
    assert torch.equal(came.view(torch.uint8), there.view(torch.uint8))
    assert frames.unknown(there)


def test_tensors_without_plain_memory_are_refused_where_they_are() -> None:
    a, _ = pair()
    with pytest.raises(TypeError, match="expected tensors and plain values"):
        a.send(torch.eye(3).to_sparse())


def rings() -> tuple[frames.Peer, frames.Peer]:
    a, b = pair()
    a.shared, b.shared = ring.Ring.offer(a.sock), ring.Ring.accept(b.sock)
    b.max_bytes = 1 << 30
    return a, b


def test_large_tensors_pass_through_the_ring() -> None:
    a, b = rings()
    base = torch.randn(12_000_001)  # three slots, the last of them in part
    message = [base[1:], base[:300_001], base[:10], base.view(torch.int32)[1::2]]
    sender = threading.Thread(target=a.send, args=(message,))
    sender.start()
    came = b.receive()
    sender.join()
    for value, expected in zip(came, message, strict=True):
        assert torch.equal(value, expected) and value.stride() == expected.stride()
    assert came[0].storage_offset() == 1
    base.zero_()
    assert came[0].abs().sum() > 0  # a copy, which no late write reaches


def test_a_ring_whose_turns_are_broken_is_refused() -> None:
    a, b = rings()
    header = json.dumps({"t": 0, "dtype": "uint8", "shape": [2 << 20], "stride": [1], "lead": 0})
    frame = struct.pack("<IIQ", len(header), 1, 2 << 20) + header.encode()
    a.sock.sendall(frame + b"x")
    with pytest.raises(frames.WireError, match="expected"):
        b.receive()
    a, b = rings()
    a.sock.sendall(frame)
    a.sock.close()
    with pytest.raises(EOFError):
        b.receive()
    a, b = rings()
    b.sock.sendall(b"x")
    with pytest.raises(frames.WireError, match="expected"):
        a.send(torch.zeros(2 << 20, dtype=torch.uint8))


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff" * 64,
        struct.pack("<IIQ", 2, 1, 1 << 40) + b"{}",
        struct.pack("<II", 4, 0) + b"junk",
        struct.pack("<II", 7, 0) + b'{"t":0}',
        struct.pack("<IIQ", 71, 1, 4)
        + b'{"t":0,"dtype":"float32","shape":[9],"stride":[1],"lead":0,"x":     0}'
        + b"0000",
        struct.pack("<II", 9, 0) + b'{"v":[1]}',
    ],
)
def test_wire_refuses_what_is_no_frame(frame: bytes) -> None:
    a, b = pair()
    sender = threading.Thread(target=lambda: (a.sock.sendall(frame), a.sock.close()))
    sender.start()
    with pytest.raises(frames.WireError):
        b.receive()
    sender.join()
