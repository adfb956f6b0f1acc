"""Outputs that a worker left in the memory that it shares with the parent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch

from refold.judge.wire.host import Host
from refold.judge.worker.leaves import packed


def size_of(outputs: Any) -> int:
    """Bytes that the outputs of a call take there."""
    return packed(outputs)[1]


def read(host: Host, position: int, size: int) -> bytearray:
    """The bytes in one slot, as they are now."""
    found = bytearray(size)
    there, done = memoryview(found), 0
    while done < size:
        count = os.preadv(host.arena, [there[done:]], position * size + done)
        if not count:  # the slot is not whole
            return found[:done]
        done += count
    return found


def spoil(host: Host, size: int, slots: int) -> None:
    """Overwrite slots: an output that is not written again is none."""
    os.pwrite(host.arena, b"\xff" * min(size * slots, 1 << 20), 0)


def outputs(raw: bytes | bytearray, like: Any) -> Any:
    """The outputs that bytes hold, of the form of ``like``. They share a bytearray's memory."""
    came, got = raw if isinstance(raw, bytearray) else bytearray(raw), []
    for start, eager in packed(like)[0]:
        there = memoryview(came)[start : start + eager.numel() * eager.element_size()]
        if not len(there):
            got.append(eager)
            continue
        flat = torch.frombuffer(there, dtype=torch.uint8)
        got.append(flat.view(eager.dtype).reshape(eager.shape))
    return _replaced(like, iter(got))


def _replaced(tree: Any, came: Iterator[torch.Tensor]) -> Any:
    if isinstance(tree, torch.Tensor):
        return next(came)
    if isinstance(tree, list | tuple):
        return type(tree)([_replaced(v, came) for v in tree])
    if isinstance(tree, dict):
        return {k: _replaced(v, came) for k, v in tree.items()}
    return tree
