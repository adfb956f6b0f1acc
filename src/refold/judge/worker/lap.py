"""In the worker: run timed calls and put their outputs where the parent can read them at once."""

from __future__ import annotations

import mmap
import socket
import time
from typing import Any

import torch

from refold.contract import seed_everything
from refold.judge import draws
from refold.judge.worker.leaves import moved, packed

_LARGE = 64 << 20  # bytes of a call's outputs


class Lap:
    """Input sets, the shared arena for outputs, and the loop."""

    def __init__(self) -> None:
        self.model: Any = None
        self._sets: list[list[Any]] = []
        self._slot = 0
        self._seed: int | None = None
        self._arena: torch.Tensor | None = None
        self._flush: torch.Tensor | None = None
        self._flush_bytes = 0
        self._graph: Any = None
        self._device = torch.device("cpu")

    @property
    def sets(self) -> int:
        """How many input sets there are."""
        return len(self._sets)

    def prepare(
        self,
        model: Any,
        sets: list[list[Any]],
        arena: int,
        slot: int,
        flush_bytes: int,
        device: torch.device,
        seed: int | None,
        keep: int,
    ) -> None:
        """Take the input sets behind the first ``keep`` of those that are here; map the arena that
        the parent made (it can not shrink)."""
        self._sets = self._sets[:keep] + sets
        self.model, self._device, self._slot = model, device, slot
        self._seed = seed
        if arena >= 0 and self._arena is None:
            shared = mmap.mmap(arena, 0)
            self._arena = torch.frombuffer(shared, dtype=torch.uint8)
        self._flush, self._flush_bytes = None, flush_bytes

    def flush(self) -> None:
        """Write more than the last cache holds."""
        if self._flush is None:
            self._flush = torch.zeros(max(self._flush_bytes, 4) // 4, device=self._device)
        self._flush.add_(1.0)
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def run(self, order: list[int], store: bool) -> list[float]:
        """Call the model on the sets in ``order``; by this side's clock the sum of the calls'
        seconds, then (on CUDA) by device events.

        With ``store``, call number i leaves its outputs in the arena's slot i: all of them when
        the last has returned, the last one first, so that calls follow one another as they do
        without. (Threads of a call fall asleep when the next does not come at once, and a busy
        machine is slow to wake them.) Where a seed was given, each of them starts from that state
        of PyTorch's generators.
        """
        total = device = 0.0
        clock = time.perf_counter
        cuda = self._device.type == "cuda"
        model, sets = self.model, self._sets
        taken: list[Any] = []
        output: Any = None
        start_state: torch.Tensor | None = None
        if store and self._seed is not None:
            seed_everything(self._seed)
            start_state = torch.get_rng_state()
        with torch.no_grad():
            for index in order:
                if self._slot > _LARGE:
                    output = None  # else two of them are held while the next is made
                if start_state is not None:  # to seed takes thirty times as long
                    torch.set_rng_state(start_state)
                    if cuda and self._seed is not None:
                        torch.cuda.manual_seed(self._seed)
                if cuda:
                    start, end = _event(), _event()
                    began = clock()
                    start.record()
                    output = model(*sets[index])
                    end.record()
                    torch.cuda.synchronize()
                    total += clock() - began
                    device += start.elapsed_time(end) * 1e-3
                else:
                    began = clock()
                    output = model(*sets[index])
                    total += clock() - began
                if store:
                    taken.append(output)
            for position in reversed(range(len(taken))):
                self._put(position, taken[position])
            if cuda:
                torch.cuda.synchronize()
        return [total, device]

    def sealed(self, sock: socket.socket, like: list[Any], offset: int, seed: int | None) -> int:
        """Calls on inputs that appear in the arena behind ``offset``, one for each byte that
        comes; returns their number. Outputs go to the arena's first slot before it is answered."""
        calls, before = 0, self._seed
        self._seed = seed
        arena = self._arena
        assert arena is not None
        while sock.recv(1) == b"g":
            self._sets = [moved(_read(like, arena[offset:]), self._device)]
            self.run([0], True)
            sock.sendall(b"d")
            calls += 1
        self._seed = before
        return calls

    def _put(self, position: int, output: Any) -> None:
        parts, size = packed(output)
        if self._arena is None or size > self._slot:
            return
        slot = self._arena[position * self._slot : (position + 1) * self._slot]
        for start, part in parts:
            here = slot[start : start + part.numel() * part.element_size()]
            if here.numel():
                here.view(part.dtype).copy_(part.detach().reshape(-1))

    def capture(self, calls: int) -> None:
        """One CUDA graph of ``calls`` calls on the first set."""
        model, inputs = self.model, self._sets[0]
        side: Any = _stream()
        with torch.no_grad(), torch.cuda.stream(side):
            model(*inputs)
        side.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self._graph):
            for _ in range(calls):
                model(*inputs)
        self.replay(1)

    def replay(self, times: int) -> None:
        """Replay the graph and wait."""
        for _ in range(times):
            self._graph.replay()
        torch.cuda.synchronize()

    def kernels(self) -> list[str]:
        """Kernel names of one call, by the profiler."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as record, torch.no_grad():
            self.model(*self._sets[0])
            torch.cuda.synchronize()
        return sorted({e.key for e in record.key_averages()})


def _read(like: list[Any], memory: torch.Tensor) -> list[Any]:
    """Inputs of a form, copied out of memory into new tensors."""
    places = iter(packed(like)[0])

    def one(t: torch.Tensor) -> torch.Tensor:
        start, _ = next(places)
        spread = any(s > 1 and st == 0 for s, st in zip(t.shape, t.stride(), strict=True))
        strides = torch.empty(t.shape, device="meta").stride() if spread else t.stride()
        fresh = torch.empty_strided(t.shape, strides, dtype=t.dtype)
        size = t.numel() * t.element_size()
        if size:
            fresh.copy_(memory[start : start + size].view(t.dtype).view(t.shape))
        return fresh

    found: list[Any] = [draws.every(v, one) for v in like]
    return found


def _event() -> Any:
    make: Any = torch.cuda.Event
    return make(enable_timing=True)


def _stream() -> Any:
    make: Any = torch.cuda.Stream
    return make()
