"""In the worker: run timed calls and put their outputs where the parent can read them at once."""

from __future__ import annotations

import mmap
import time
from typing import Any

import torch


class Lap:
    """Input sets, the shared arena for outputs, and the loop."""

    def __init__(self) -> None:
        self.model: Any = None
        self._sets: list[list[Any]] = []
        self._arena: torch.Tensor | None = None
        self._flush: torch.Tensor | None = None
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
        flush_bytes: int,
        device: torch.device,
    ) -> None:
        """Take the input sets; map the arena that the parent made (it can not shrink)."""
        self.model, self._sets, self._device = model, sets, device
        if arena >= 0:
            shared = mmap.mmap(arena, 0)
            self._arena = torch.frombuffer(shared, dtype=torch.uint8)
        self._flush = torch.zeros(max(flush_bytes, 4) // 4, device=device)

    def run(self, order: list[int], cold: bool, store: bool) -> list[float]:
        """Call the model on the sets in ``order``; seconds of each call.

        With ``store``, call number i leaves its first output in the arena's slot i. Warm laps
        answer with one number, the sum: a list of thousands would cost the parent's clock.
        """
        times: list[float] = []
        clock = time.perf_counter
        cuda = self._device.type == "cuda"
        model, sets = self.model, self._sets
        with torch.no_grad():
            for position, index in enumerate(order):
                if cold and self._flush is not None:
                    self._flush.add_(1.0)
                if cuda:
                    start, end = _event(), _event()
                    start.record()
                    output = model(*sets[index])
                    end.record()
                    if not store:
                        torch.cuda.synchronize()
                        times.append(start.elapsed_time(end) * 1e-3)
                else:
                    began = clock()
                    output = model(*sets[index])
                    times.append(clock() - began)
                if store:
                    self._put(position, output)
            if cuda:
                torch.cuda.synchronize()
        return times if cold else [sum(times)]

    def _put(self, position: int, output: Any) -> None:
        first = output
        while isinstance(first, list | tuple):
            first = first[0]
        if self._arena is None or not isinstance(first, torch.Tensor):
            return
        size = first.numel() * first.element_size()
        slot = self._arena[position * size : (position + 1) * size]
        if slot.numel() == size:
            slot.view(first.dtype).copy_(first.detach().reshape(-1))

    def graph(self, calls: int) -> float:
        """Seconds per call when ``calls`` calls replay inside one CUDA graph."""
        model, inputs = self.model, self._sets[0]
        side: Any = _stream()
        with torch.no_grad(), torch.cuda.stream(side):
            model(*inputs)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            for _ in range(calls):
                model(*inputs)
        graph.replay()
        torch.cuda.synchronize()
        start, end = _event(), _event()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / calls

    def kernels(self) -> list[str]:
        """Kernel names of one call, by the profiler."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as record, torch.no_grad():
            self.model(*self._sets[0])
            torch.cuda.synchronize()
        return sorted({e.key for e in record.key_averages()})


def _event() -> Any:
    make: Any = torch.cuda.Event
    return make(enable_timing=True)


def _stream() -> Any:
    make: Any = torch.cuda.Stream
    return make()
