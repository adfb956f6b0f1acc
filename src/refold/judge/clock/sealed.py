"""Sealed calls: a call's time begins when its input is revealed and ends when its output is read.

The input lies in no memory of the worker before: the parent writes it into shared memory inside
the span, and the span ends when the output lies in shared memory and the worker says so. Work that
was remembered, prepared, skipped or kept back costs its time then, so no time needs to accuse.
Eager, a second eager (the control) and a model that computes nothing (the transport) are called in
the same way and as often.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from refold.judge.clock import arena
from refold.judge.draws.trees import tensors
from refold.judge.wire.frames import view_bytes
from refold.judge.wire.host import Host
from refold.judge.wire.meter import size_of, spanned
from refold.judge.worker.leaves import packed

_PATIENCE = 120.0


def inputs_size(inputs: Any) -> int:
    """Bytes that the inputs of a call take in shared memory."""
    return packed(inputs)[1]


def same_form(a: Any, b: Any) -> bool:
    """Whether two sets of inputs differ in values only."""
    pairs = list(zip(tensors(a), tensors(b), strict=False))
    forms = [(x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype) for x, y in pairs]
    return len(tensors(a)) == len(tensors(b)) and all(forms)


@dataclass
class Side:
    """One worker and its spans. ``offset``: where inputs lie behind the outputs' slots."""

    host: Host
    like: list[Any]
    size: int  # of the outputs of a call
    offset: int
    seed: int | None
    spans: list[list[float]] = field(default_factory=list)

    @spanned("sealed lap", lambda self, *_: self.size)
    def lap(self, buffers: Sequence[bytes], keep: Sequence[int] = ()) -> dict[int, bytearray]:
        """Calls on inputs (`written`) that nobody has seen; the outputs' bytes of those in
        ``keep``. A first call, which is not counted, wakes the worker."""
        kept: dict[int, bytearray] = {}
        spans = []
        host = self.host
        host.open_sealed(self.like, self.offset, self.seed)
        try:
            for i, buffer in enumerate([buffers[0], *buffers]):
                number = i - 1
                if number in keep:
                    arena.spoil(host, self.size, 1)
                began = time.perf_counter()
                os.pwrite(host.arena, buffer, self.offset)
                host.sealed_call(_PATIENCE)
                span = time.perf_counter() - began
                if number >= 0:
                    spans.append(span)
                if number in keep:
                    kept[number] = arena.read(host, 0, self.size)
        finally:
            if host.alive:
                host.close_sealed(_PATIENCE)
        self.spans.append(spans)
        return kept

    def seconds(self) -> list[float]:
        """The median span of each lap."""
        return [statistics.median(one) for one in self.spans]


@spanned("inputs written", size_of)
def written(inputs: list[Any]) -> bytes:
    """The inputs of a call as they lie in shared memory."""
    parts, end = packed(inputs)
    buffer = bytearray(end)
    for start, tensor in parts:
        data = view_bytes(_dense(tensor))
        buffer[start : start + len(data)] = data
    return bytes(buffer)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous()
