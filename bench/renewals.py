"""What a module of refold takes where parameters change again and again, beside eager.

    python bench/renewals.py [rounds]

Each program writes parameters and calls the module, so often in turns. A row has the median of the
microseconds of one turn by the module itself and by the fast one, which take turns; and how many
of the fast one's calls were fast. One thread.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.func import functional_call

import refold

Program = Callable[[nn.Module, torch.Tensor], None]


class Perceptron(nn.Module):
    """Three layers and a batch norm; their sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)
        self.b, self.c = nn.Linear(width, width), nn.Linear(width, 64)
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.b(self.norm(self.a(x)).relu()).relu()
        result: torch.Tensor = self.c(y).sum(-1) * self.scale
        return result


class Images(nn.Module):
    """Two convolutions, each with a batch norm, and a head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width)
        self.b, self.last = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.head, self.scale = nn.Linear(width, 10), 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.last(self.b(self.norm(self.a(x)).relu())).relu()
        result: torch.Tensor = self.head(y.mean((2, 3))) * self.scale
        return result


class Block(nn.Module):
    """A transformer's block of one head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(q @ k.transpose(-1, -2) / 16, -1) @ v)
        y: torch.Tensor = self.down(nn.functional.gelu(self.up(self.second(x))))
        return x + y * self.scale


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "layers of 256": lambda: (Perceptron(256), torch.randn(16, 256)),
    "layers of 1024": lambda: (Perceptron(1024), torch.randn(64, 1024)),
    "32 channels": lambda: (Images(32), torch.randn(8, 3, 32, 32)),
    "a block of 256": lambda: (Block(256), torch.randn(4, 64, 256)),
}


def called(module: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        module(x)


def written(module: nn.Module) -> None:
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0)


def loads(assign: bool) -> Program:
    def program(module: nn.Module, x: torch.Tensor) -> None:
        state = {k: v.detach() for k, v in module.state_dict().items()}
        if assign:
            state = {k: v.clone() for k, v in state.items()}
        module.load_state_dict(state, assign=assign)
        called(module, x)

    return program


def trains(module: nn.Module, x: torch.Tensor) -> None:
    module.train()
    module(x).sum().backward()
    torch.optim.SGD(module.parameters(), lr=1e-9).step()
    module.zero_grad()
    module.eval()
    called(module, x)


def swaps(module: nn.Module, x: torch.Tensor) -> None:
    """Averaged weights for one call, as EMA does."""
    kept = [p.detach().clone() for p in module.parameters()]
    for p in module.parameters():
        p.data.mul_(0.5)
    called(module, x)
    for p, k in zip(module.parameters(), kept, strict=True):
        p.data.copy_(k)


def functional(module: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        functional_call(module, {k: p * 0.5 for k, p in module.named_parameters()}, (x,))


def sets(module: nn.Module, x: torch.Tensor) -> None:
    module.scale += 1.0  # type: ignore[operator, assignment]
    called(module, x)


def calls(times: int) -> Program:
    def program(module: nn.Module, x: torch.Tensor) -> None:
        written(module)
        for _ in range(times):
            called(module, x)

    return program


PROGRAMS: dict[str, Program] = {
    "a call": called,
    "load_state_dict, a call": loads(False),
    "load_state_dict(assign=True), a call": loads(True),
    "a training step, a call": trains,
    "weights swapped by .data, a call, and back": swaps,
    "functional_call of new tensors": functional,
    "a setting, a call": sets,
    "writes, a call": calls(1),
    "writes, 2 calls": calls(2),
    "writes, 4 calls": calls(4),
    "writes, 16 calls": calls(16),
    "writes, 64 calls": calls(64),
}


def timed(program: Program, module: nn.Module, x: torch.Tensor) -> float:
    start = time.perf_counter()
    program(module, x)
    return (time.perf_counter() - start) * 1e6


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    logging.getLogger("refold").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    for name, make in MODELS.items():
        module, x = make()
        for words, program in PROGRAMS.items():
            module.eval()
            fast = refold.optimize(module, x, measure=False)
            for _ in range(24):  # what is not yet known of the program is found out
                program(module, x), program(fast, x)
            times: list[list[float]] = [[], []]
            count = 0
            for _ in range(rounds):
                times[0].append(timed(program, module, x))
                times[1].append(timed(program, fast, x))
                count += refold.status(fast).fast
            eager, ours = map(statistics.median, times)
            mean = statistics.fmean(times[1]) / statistics.fmean(times[0])
            print(
                f"{name:15} {words:43} eager {eager:9.1f}  fast {ours:9.1f}  {ours / eager:.2f}"
                f"  by means {mean:.2f}  {count / rounds:4.0%} fast",
                flush=True,
            )


if __name__ == "__main__":
    main()
