"""What the guards of an emitted module cost a call, in microseconds.

python bench/overhead.py
"""

from __future__ import annotations

import timeit

import torch
from torch import nn

import refold
from refold import introspect, twin
from refold.measure import synchronise


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 64)
        self.bn = nn.BatchNorm1d(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bn(self.fc(x)).sum(dim=1, keepdim=True)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = Net().eval().to(device)
    x = torch.randn(4, 64, device=device)
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        ((program, caches),) = twin.state_of(fast).programs
        cache, space = caches["eval"], program.namespace
        rows = {
            f"modules and {len(cache.sources)} sources unchanged": lambda: (
                space._refold_kernels.unchanged(*cache.watched)
            ),
            "all guards": lambda: space._refold_prepare(fast, caches, "eval", x),
            "what follows the guards": lambda: space._refold_eval(fast, cache, x),
            "torch.empty": lambda: torch.empty((4, 1), dtype=torch.float32, device=x.device),
            "a fast call, whole": lambda: fast(x),
            "an eager call": lambda: module(x),
        }
        for words, call in rows.items():
            times = []
            for _ in range(50):
                synchronise(device)  # a queue that is full would be timed too
                times.append(timeit.timeit(call, number=400) / 400)
            print(f"{words}: {min(times) * 1e6:.2f} µs")


if __name__ == "__main__":
    main()
