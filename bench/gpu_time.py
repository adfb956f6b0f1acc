"""Where the time of a call goes on a GPU: kernels of ours, kernels of others, and the host."""

from __future__ import annotations

import gc
import re
import statistics
import time
from collections.abc import Callable, Iterable

import torch
from torch import nn

ROUNDS = 5
OURS = re.compile(r"\brf::|^_ZNK?2rf")  # the namespace of all our kernels, as compilers write it


def share(kernels: Iterable[tuple[str, float]]) -> float:
    """Of the time of kernels (names, and times of any unit), the part that ours take."""
    kernels = list(kernels)
    total = sum(time for _, time in kernels)
    own = sum(time for name, time in kernels if OURS.search(name))
    return own / total if total else 0.0


def gpu_time(call: Callable[[], object]) -> dict[str, str]:
    """What a call of a GPU's work takes, as text.

    gpu_ms: milliseconds of its kernels and copies, the mean of ROUNDS calls while a profiler runs;
    those that overlap count twice. gpu_share: the part of it that ours take. host_ms: milliseconds
    until a call is back, its kernels not waited for, the median of ROUNDS calls without a profiler.
    Where that is about what a call takes with its kernels, the GPU waits for the host.
    """
    host = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        host.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(ROUNDS):
            call()
        torch.cuda.synchronize()
    kernels = [
        (event.name, float(event.self_device_time_total))
        for event in profile.events()
        if str(event.device_type).endswith("CUDA")
    ]
    return {
        "gpu_ms": f"{sum(us for _, us in kernels) / ROUNDS / 1e3:.3f}",
        "gpu_share": f"{share(kernels):.2f}",
        "host_ms": f"{statistics.median(host) * 1e3:.3f}",
    }


def peak_gb(module: nn.Module, call: Callable[[], object]) -> str:
    """GB at the peak of a call, as text, beyond what stands before it: no gradients of module's."""
    for parameter in module.parameters():
        parameter.grad = None
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return f"{(torch.cuda.max_memory_allocated() - before) / 1e9:.3f}"
