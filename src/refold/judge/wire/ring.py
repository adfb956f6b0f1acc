"""Memory that parent and worker both map: the bytes of large tensors pass through it slot by slot.

A socket carries a gigabyte in seconds. Here the sender fills a slot and says so, the receiver takes
a copy and says so, each while the other is busy with another slot. Nothing is read twice: what the
other side writes late is in no copy. The file has its size for good, because one that shrinks under
a reader ends the reader.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket

import torch

LEAST = 1 << 20  # bytes; what is smaller goes through the socket
_SLOT, _SLOTS = 16 << 20, 2
_FULL, _TAKEN = b"f", b"t"


class RingError(RuntimeError):
    """The other side broke the order of turns."""


class Ring:
    """One side's mapping of a file, whose descriptor it takes. A tensor may lie on any device."""

    def __init__(self, fd: int) -> None:
        shared = mmap.mmap(fd, _SLOT * _SLOTS)  # with a descriptor of its own
        os.close(fd)
        self._slots = torch.frombuffer(shared, dtype=torch.uint8).view(_SLOTS, _SLOT)

    @classmethod
    def offer(cls, sock: socket.socket) -> Ring:
        """Map a new file, and send it to the other side."""
        fd = os.memfd_create("refold-ring", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, _SLOT * _SLOTS)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        socket.send_fds(sock, [_FULL], [fd])
        return cls(fd)

    @classmethod
    def accept(cls, sock: socket.socket) -> Ring:
        """Map the file that the other side sends."""
        _, descriptors, _, _ = socket.recv_fds(sock, 1, 1)
        return cls(descriptors[0])

    def put(self, sock: socket.socket, data: torch.Tensor) -> None:
        """Send a flat tensor of bytes."""
        pieces = torch.split(data, _SLOT)
        for i, piece in enumerate(pieces):
            if i >= _SLOTS:
                _expect(sock, _TAKEN)
            self._slots[i % _SLOTS, : piece.numel()].copy_(piece)
            sock.sendall(_FULL)
        for _ in pieces[-_SLOTS:]:
            _expect(sock, _TAKEN)

    def take(self, sock: socket.socket, into: torch.Tensor) -> None:
        """Fill a flat tensor of bytes with what the other side puts."""
        for i, piece in enumerate(torch.split(into, _SLOT)):
            _expect(sock, _FULL)
            piece.copy_(self._slots[i % _SLOTS, : piece.numel()])
            sock.sendall(_TAKEN)


def _expect(sock: socket.socket, byte: bytes) -> None:
    came = sock.recv(1)
    if not came:
        raise EOFError("the other side is gone")
    if came != byte:
        raise RingError(f"expected {byte!r}, came {came!r}")
