"""Steps of training: eager, torch.compile and backend="refold" in turns, as CSV.

    python bench/training.py [--only mlp gpt] [--seconds 5] [--output CSV]
    python bench/training.py --only mlp --set rows=8192 width=4096 --device cuda

Each line is one model. `eager` and `compile` are the seconds of a step of theirs over one of
refold's, with the quartiles of the latter. `forward` and `backward`: the share of FLOPs that ran in
kernels of ours. `error`: the largest ratio of refold's error over eager's, of the gradient of any
parameter, against float64. `peak_*`: GB of a GPU that a step needs. `cold_*`, `warm_*`: seconds of
the first step, which compiles, each in a process of its own, from empty caches and from those that
the one before it filled.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import functools
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from record import Record, commit
from torch import nn

from refold.backend import Report, refold
from refold.backend.report import collected
from refold.measure import Side, race

Step = Callable[[], torch.Tensor]


class Mlp(nn.Module):
    """Two hidden layers with batch norm and GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = (width // 2, width, width, width // 4)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm1d(n) for n in sizes[1:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        labels = (x[:, 0] * 1000).long()  # no constant, of which a compiler could make one
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = F.gelu(norm(layer(x)))
        scores = self.layers[-1](x)
        loss: torch.Tensor = F.cross_entropy(scores, labels.remainder(scores.shape[1]))
        return loss


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        q, k, v = (
            part.view(rows, tokens, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.first(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, tokens, width))
        hidden: torch.Tensor = F.gelu(self.up(self.second(x)), approximate="tanh")
        return x + self.down(hidden)  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """Blocks of attention between an embedding and a head, with their loss."""

    def __init__(self, width: int, blocks: int, words: int) -> None:
        super().__init__()
        self.words, self.table = words, nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, max(1, width // 64)) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.loss(self.blocks(self.table(ids)), ids)

    def loss(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Of what the blocks give."""
        scores = self.head(self.norm(x))
        rows, wanted = scores[:, :-1].reshape(-1, self.words), ids[:, 1:].reshape(-1)
        loss: torch.Tensor = F.cross_entropy(rows, wanted)
        return loss


SIZES: Mapping[str, dict[str, int]] = {
    "mlp": {"rows": 512, "width": 1024},
    "gpt": {"rows": 2, "tokens": 128, "width": 256, "blocks": 2, "words": 1024},
}


def made(name: str, sizes: Mapping[str, int], device: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    if name == "mlp":
        x = torch.randn(sizes["rows"], sizes["width"] // 2)
        return Mlp(sizes["width"]).to(device), x.to(device)
    ids = torch.randint(0, sizes["words"], (sizes["rows"], sizes["tokens"]))
    return Gpt(sizes["width"], sizes["blocks"], sizes["words"]).to(device), ids.to(device)


def step_of(run: Callable[..., torch.Tensor], model: nn.Module, x: torch.Tensor) -> Step:
    """Forward, backward and an update of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = run(x)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    return step


def errors(sides: Mapping[str, tuple[Any, nn.Module]], x: torch.Tensor) -> dict[str, float]:
    """Each side's error of gradients over eager's, the largest of all parameters."""
    exact = copy.deepcopy(sides["eager"][1]).double()
    torch.autograd.backward(exact(x.double() if x.is_floating_point() else x))
    truth = [p.grad for p in exact.parameters()]
    top = max(float(t.norm()) for t in truth if t is not None)
    found: dict[str, list[float]] = {}
    for name, (run, model) in sides.items():
        model.zero_grad()
        torch.autograd.backward(run(x))
        pairs = zip(model.parameters(), truth, strict=True)
        # a gradient that is nothing but rounding counts by the largest of all
        found[name] = [
            float((p.grad.double() - t).norm()) + 1e-7 * top
            for p, t in pairs
            if p.grad is not None and t is not None
        ]
        model.zero_grad()
    own = found["eager"]
    return {n: max(a / b for a, b in zip(e, own, strict=True)) for n, e in found.items()}


COMPILERS: Mapping[str, Callable[[nn.Module], Any]] = {
    "eager": lambda m: m,
    "compile": torch.compile,
    "refold": lambda m: torch.compile(m, backend=functools.partial(refold, options={})),
}


def first_step(name: str, sizes: Mapping[str, int], device: str, side: str) -> tuple[float, float]:
    """In this process: seconds of the first step, and the GB of a GPU that the third one needs."""
    model, x = made(name, sizes, device)
    step = step_of(COMPILERS[side](model), model, x)
    start = time.perf_counter()
    step()
    seconds = time.perf_counter() - start
    if device == "cpu":
        return seconds, 0.0
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    return seconds, torch.cuda.max_memory_allocated() / 1e9


def beside(
    name: str, sizes: Mapping[str, int], device: str, side: str, caches: Mapping[str, str]
) -> tuple[float, float]:
    """The same in a process of its own."""
    given = [f"{k}={v}" for k, v in sizes.items()]
    command = [sys.executable, __file__, "--only", name, "--device", device, "--first", side]
    done = subprocess.run(
        [*command, "--set", *given],
        env=os.environ | dict(caches),
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak = done.stdout.split()[-2:]
    return float(seconds), float(peak)


def first_steps(
    name: str, sizes: Mapping[str, int], device: str, side: str
) -> list[tuple[float, float]]:
    """The same in two processes, the second with the caches of the first."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TORCHINDUCTOR_CACHE_DIR": folder, "REFOLD_CACHE": folder}
        return [beside(name, sizes, device, side, caches) for _ in range(2)]


def measured(
    name: str, sizes: Mapping[str, int], device: str, seconds: float, starts: bool
) -> dict[str, Any]:
    """One row; starts: whether processes of their own are timed from their start, too."""
    model, x = made(name, sizes, device)
    sides, steps = {}, {}
    report = Report(())
    for side, compiler in COMPILERS.items():
        own = copy.deepcopy(model)
        torch._dynamo.reset()
        with collected() as graphs:
            sides[side] = compiler(own), own
            steps[side] = step_of(*sides[side], x)
            steps[side]()
            own.load_state_dict(model.state_dict())
        report = Report(tuple(graphs))
    print(report)
    first, peaks = {}, {}
    for side in ("compile", "refold"):
        if starts:
            first[side] = first_steps(name, sizes, device, side)
            peaks[side] = first[side][-1][1]
        elif device != "cpu":
            peaks[side] = beside(name, sizes, device, side, {})[1]
    found = errors(sides, x)
    bases = {n: Side(steps[n]) for n in ("eager", "compile")}
    timing = race(bases, steps["refold"], device, seconds)
    return {
        "model": name,
        "sizes": " ".join(f"{k}={v}" for k, v in sizes.items()),
        "eager": f"{timing['eager'].ratio:.3f}",
        "compile": f"{timing['compile'].ratio:.3f}",
        "low": f"{timing['compile'].low:.3f}",
        "high": f"{timing['compile'].high:.3f}",
        "refold_ms": f"{timing['compile'].other * 1e3:.2f}",
        "forward": f"{report.share('forward'):.2f}",
        "backward": f"{report.share('backward'):.2f}",
        "error": f"{found['refold']:.2f}",
        "error_compile": f"{found['compile']:.2f}",
        **{f"peak_{side}_gb": f"{peak:.2f}" for side, peak in peaks.items() if peak},
        **{f"cold_{side}_s": f"{both[0][0]:.1f}" for side, both in first.items()},
        **{f"warm_{side}_s": f"{both[1][0]:.1f}" for side, both in first.items()},
        "engine_s": f"{sum(g.compiling[0] for g in report.graphs):.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--no-starts", action="store_true", help="leave cold and warm starts out")
    parser.add_argument("--first", choices=list(COMPILERS), help="print a first step's seconds")
    asked = parser.parse_args()
    given = {k: int(v) for k, _, v in (one.partition("=") for one in asked.set)}
    name = torch.cuda.get_device_name() if asked.device == "cuda" else "cpu"
    rows: list[dict[str, Any]] = []
    record = None if asked.output is None else Record(asked.output)
    for model in asked.only:
        sizes = {k: given.get(k, v) for k, v in SIZES[model].items()}
        if asked.first is not None:
            print(*first_step(model, sizes, asked.device, asked.first))
            continue
        found = measured(model, sizes, asked.device, asked.seconds, not asked.no_starts)
        about = {"date": datetime.date.today().isoformat(), "device": name}
        about |= {"threads": str(torch.get_num_threads()), "torch": torch.__version__}
        rows.append(found | about | {"commit": commit()})
        print(rows[-1])
        if record is not None:
            record.write(rows)


if __name__ == "__main__":
    main()
