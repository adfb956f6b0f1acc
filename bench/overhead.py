"""What the guards and the freshness check of the folded parameters cost a call, in microseconds.

python bench/overhead.py
"""

from __future__ import annotations

import timeit

import torch
from torch import nn

import refold
from refold import pipeline


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 64)
        self.bn = nn.BatchNorm1d(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bn(self.fc(x)).sum(dim=1, keepdim=True)


def main() -> None:
    module = Net().eval()
    x = torch.randn(4, 64)
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        assert pipeline.obstacle(fast, [x]) is None
        sources = fast._refold_caches["eval"].sources
        is_fresh = fast._refold_caches["eval"].is_fresh
        rows = {
            f"freshness of {len(sources)} sources": lambda: is_fresh(sources),
            "all guards": lambda: fast._refold_obstacle_eval(x),
            "a fast call, whole": lambda: fast(x),
            "an eager call": lambda: module(x),
        }
        for words, call in rows.items():
            best = min(timeit.repeat(call, number=5000, repeat=7)) / 5000
            print(f"{words}: {best * 1e6:.2f} µs")


if __name__ == "__main__":
    main()
