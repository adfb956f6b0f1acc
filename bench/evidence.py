"""What it costs a call to look whether parameters are as they were, in microseconds.

python bench/evidence.py

Warm: call after call. Cold: the caches hold other memory before each call. "counted" compares
versions, addresses and storages only; "contents" compares what the parameters' memory holds, too,
and audits 1 KiB. "a tensor" is what that adds for each, "all" the whole call over the tensors.
Parameters of 64 x 64 floats, of which 32 words are read. Then other evidence: dictionaries, the end
of an optimizer's step; and what digests of all parameters would take.
"""

from __future__ import annotations

import statistics
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import refold
from refold import twin

DIGESTED = 256 << 20  # bytes


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).sum(dim=1, keepdim=True)


def best(call: Callable[[], object], before: Callable[[], object] | None, rounds: int) -> float:
    """The median of the time of one call, in microseconds; the fastest of five of these."""
    medians = []
    for _ in range(5):
        times = []
        for _ in range(rounds):
            if before is not None:
                before()
            start = time.perf_counter_ns()
            call()
            times.append((time.perf_counter_ns() - start) / 1e3)
        medians.append(statistics.median(times))
    return min(medians)


def main() -> None:
    fast = refold.optimize(Net().eval(), torch.randn(4, 64), measure=False)
    (namespace,) = twin.namespaces(fast)
    kernels = namespace._refold_kernels
    other = torch.zeros(16 << 20)  # 64 MiB, more than the caches hold
    nothing = best(lambda: None, None, 500)
    side = "counted {0}  contents {0}  a tensor       all"
    print("tensors ", side.format("warm"), side.format("cold"), sep="  ")
    for count in (1, 10, 200, 1000):
        tensors = [torch.randn(64, 64) for _ in range(count)]
        watched = tuple(part for t in tensors for part in (t, True))
        stores = tuple(weakref.ref(t.untyped_storage()) for t in tensors)
        contents = tuple(part for t in tensors for part in (t.data_ptr(), 4 * t.numel()))
        calls = []
        for chosen in ((), contents):
            given = ((), (), (), watched, stores, chosen)
            memory = kernels.watch(*given, 1)
            arguments = (*given, (), (), memory)
            calls.append(lambda a=arguments: kernels.unchanged(*a))
        warm = [best(c, None, 500) - nothing for c in calls]
        cold = [best(c, lambda: other.add_(1), 12) - nothing for c in calls]
        each = [(t[1] - t[0]) / count for t in (warm, cold)]
        rows = [
            f"{t[0]:12.2f}  {t[1]:13.2f}  {more:8.3f}  {t[1] / count:8.3f}"
            for t, more in zip((warm, cold), each, strict=True)
        ]
        print(f"{count:7d} ", *rows, sep="  ")
    others(namespace, nothing)


def others(namespace: Any, nothing: float) -> None:
    """The evidence that does not grow with the parameters, and what is not taken."""
    kernels = namespace._refold_kernels
    dicts = [{"a": i, "b": None} for i in range(1000)]
    rows = tuple((d, len(d), *(x for pair in d.items() for x in pair)) for d in dicts)
    times = []
    for chosen in ((), rows):
        given = (chosen, (), (), (), (), ())
        arguments = (*given, (), (), kernels.watch(*given, 1))
        times.append(best(lambda a=arguments: kernels.unchanged(*a), None, 500))  # type: ignore[misc]
    print(f"a dictionary of two entries: {times[1] - times[0]:.2f} ns warm (of 1000)")
    for count in (2, 200):
        parameters = [nn.Parameter(torch.zeros(64, 64)) for _ in range(count)]
        sgd = torch.optim.SGD(parameters, lr=0.1)
        hook = best(lambda o=sgd: namespace._refold_stepped(o, (), {}), None, 500) - nothing  # type: ignore[misc]
        print(f"the end of a step of an optimizer of {count} parameters: {hook:.1f} us")
    memory = torch.zeros(DIGESTED // 4)
    contents = (memory.data_ptr(), DIGESTED)
    whole = best(lambda: kernels.watch((), (), (), (), (), contents, 1), None, 3)
    print(f"digests of {DIGESTED >> 20} MiB: {whole / 1e3:.0f} ms")


if __name__ == "__main__":
    main()
