"""Times attention of float32 by refold's backend beside PyTorch's own function, on a GPU.

    python bench/cuda_attention.py [--only PART ...] [--write]

`forward` is a call without gradients, `step` one with those of queries, keys and values: both are
called many times behind a wait on the GPU, so that the time is the GPU's and not the host's; both
sides by turns, the median of 5. `times` is PyTorch's time over ours. Errors are relative norms
against float64, the larger of the result's and the three gradients'. `kernels` says whether ours
ran. `--write` adds rows to bench/results/h200_attention.csv.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from gpu_time import gpu_time
from record import HERE, Record, gpu

from refold.backend import refold

CALLS = 5  # behind each wait
WAIT = 40_000_000  # cycles
ROUNDS = 5
CHECKED = 2  # batches whose errors are taken: float64 has all scores in memory

_cuda: Any = torch.cuda
Run = Callable[[], object]
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """mask: its shape; causal: whether later keys are left out."""

    batch: int
    tokens: int
    heads: int
    features: int
    causal: bool = False
    mask: tuple[int, ...] = ()

    def __str__(self) -> str:
        kind = (
            " causal" if self.causal else " mask" + "x".join(map(str, self.mask)) * bool(self.mask)
        )
        sizes = f"{self.batch}x{self.tokens}x{self.heads}x{self.features}"
        return sizes + (kind if self.causal or self.mask else "")


CASES = (
    Case(32, 1024, 16, 64),
    Case(8, 1500, 8, 64),
    Case(4, 4096, 32, 128, causal=True),
    Case(4, 2048, 16, 128, causal=True),
    Case(2, 2048, 32, 64, causal=True),
    Case(8, 1024, 12, 64, causal=True),
    Case(8, 512, 12, 64),
    Case(8, 512, 12, 64, mask=(8, 1, 512, 512)),
    Case(64, 197, 12, 64),
    Case(64, 77, 8, 64, causal=True),
)


def timed(sides: Sequence[Run]) -> list[float]:
    """Microseconds a call of each side."""
    found: list[list[float]] = [[] for _ in sides]
    for run in sides:
        run()
    for _ in range(ROUNDS):
        for run, times in zip(sides, found, strict=True):
            begin, end = (_cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            _cuda._sleep(WAIT)
            begin.record()
            for _ in range(CALLS):
                run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / CALLS)
    return [statistics.median(times) for times in found]


def truth(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, case: Case,
          mask: torch.Tensor | None) -> Tensors:  # fmt: skip
    """The result and the gradients in float64, of the first batches."""
    q, k, v = (x[:CHECKED].double().detach().requires_grad_() for x in (q, k, v))
    scores = q @ k.mT * case.features**-0.5
    if mask is not None:
        scores = scores + mask[:CHECKED].double()
    if case.causal:
        later = torch.ones(case.tokens, case.tokens, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    out = scores.softmax(-1) @ v
    return out.detach(), *torch.autograd.grad(out, (q, k, v), g[:CHECKED].double())


def measure(case: Case) -> dict[str, object]:
    torch._dynamo.reset()
    shape = case.batch, case.tokens, case.heads, case.features
    q, k, v, g = (torch.randn(shape, device="cuda").transpose(1, 2) for _ in range(4))
    mask = torch.randn(case.mask, device="cuda") if case.mask else None

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=case.causal)

    ours = torch.compile(attend, backend=functools.partial(refold, options={"measure": False}))
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]

    def forward(of: Callable[..., torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            return of(q, k, v)

    def step(of: Callable[..., torch.Tensor]) -> Tensors:
        out = of(*leaves)
        return out.detach(), *torch.autograd.grad(out, leaves, g)

    exact = truth(q, k, v, g, case, mask)
    errors = [
        max(
            float((o[:CHECKED].double() - t).norm() / t.norm())
            for o, t in zip(found, exact, strict=True)
        )
        for found in (step(attend), step(ours))
    ]
    runs = [functools.partial(f, of) for f in (forward, step) for of in (attend, ours)]
    eager, own, eager_step, own_step = timed(runs)
    return {
        "case": str(case),
        "forward_us": round(own, 1),
        "eager_forward_us": round(eager, 1),
        "forward_times": round(eager / own, 2),
        "step_us": round(own_step, 1),
        "eager_step_us": round(eager_step, 1),
        "step_times": round(eager_step / own_step, 2),
        "error": f"{errors[1]:.1e}",
        "eager_error": f"{errors[0]:.1e}",
        "kernels": gpu_time(runs[3])["gpu_share"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of cases' names")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--commit", default="", help="what is measured, where git does not know")
    args = parser.parse_args()
    record = Record(HERE / "results" / "h200_attention.csv")
    known = gpu(args.commit)
    results: list[dict[str, object]] = []
    for case in CASES:
        if not any(part in str(case) for part in args.only):
            continue
        results.append(measure(case))
        if len(results) == 1:
            print(" | ".join(f"{name:>{28 if name == 'case' else 9}}" for name in results[0]))
        row = results[-1].items()
        print(
            " | ".join(f"{x!s:>{28 if n == 'case' else max(9, len(n))}}" for n, x in row),
            flush=True,
        )
        if args.write:
            record.write([known | r for r in results])


if __name__ == "__main__":
    main()
