"""Times the kernels of rows and columns, as emitted, beside PyTorch's eager ops and a plain copy.

    python bench/cuda_rows.py [--only PART ...] [--write]

Every time is that of one call among many in a CUDA graph. Warm: always the same tensors. Cold: as
many sets of tensors by turns as hold eight times the second-level cache. GB/s count every operand
read once and every output written once; `of copy` is that over the rate at which the same run
copies a large tensor (PyTorch's elementwise kernel). Errors are relative norms against the op table
in float64. `--write` adds rows to bench/results/h200_rows.csv.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from record import HERE, Record, gpu
from tests.gpu.emitted import Kernel, draw, emitted, named

Eager = Callable[..., object]


@dataclass(frozen=True)
class Case:
    title: str
    model: str
    group: int  # of the model's groups of rows or columns
    sizes: tuple[int, ...]
    eager: Eager


def affine(x: torch.Tensor, *p: torch.Tensor) -> object:
    return (x - p[0]) * p[1] + p[2], x * p[3] + p[4]


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w.flatten(), b.flatten())


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


def given(x: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    e = (x - top).exp()
    return e / e.sum(-1, keepdim=True)


def moments(x: torch.Tensor) -> object:
    return torch.var_mean(x, -2)


def slices(x: torch.Tensor) -> object:
    return torch.var_mean(x, -2), x.amax(-2), x.amin(-2)


def matvec(x: torch.Tensor, v: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    return x[0, 0] @ v.flatten() + one.flatten()


def flat(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + y) * z


def mixed(x: torch.Tensor, c: torch.Tensor, p: torch.Tensor, line: torch.Tensor) -> torch.Tensor:
    return F.silu(x * c + p) * line


CASES = (
    Case("copy 16384x4096", "Copy", 0, (16384, 4096), lambda x: x * 2.0),
    Case("copy 1024x8192", "Copy", 0, (1024, 8192), lambda x: x * 2.0),
    Case("gelu(x + y) * z 8191x1023", "Flat", 0, (8191, 1023), flat),
    Case("two affine maps 16384x4096", "Affine", 0, (16384, 4096), affine),
    Case("two affine maps 1024x8192", "Affine", 0, (1024, 8192), affine),
    Case("two affine maps 65536x65", "Affine", 0, (65536, 65), affine),
    Case("broadcasting 32x64x56x56", "Mixed", 0, (32, 64, 56, 56), mixed),
    Case("x @ v 1024x8192", "Matvec", 0, (1024, 8192), matvec),
    Case("x @ v 128x32768", "Matvec", 0, (128, 32768), matvec),
    Case("x @ v 16384x4096", "Matvec", 0, (16384, 4096), matvec),
    Case("x @ v 8x1000000", "Matvec", 0, (8, 1000000), matvec),
    Case("x @ v 1000000x16", "Matvec", 0, (1000000, 16), matvec),
    Case("x @ v 8191x1023", "Matvec", 0, (8191, 1023), matvec),
    Case("softmax 1024x8192", "Softmax", 0, (1024, 8192), softmax),
    Case("softmax 16384x4096", "Softmax", 0, (16384, 4096), softmax),
    Case("softmax 2048x32768", "Softmax", 0, (2048, 32768), softmax),
    Case("softmax 1000000x50", "Softmax", 0, (1000000, 50), softmax),
    Case("softmax 1000000x10", "Softmax", 0, (1000000, 10), softmax),
    Case("softmax 65536x1000", "Softmax", 0, (65536, 1000), softmax),
    Case("softmax 16384x1023", "Softmax", 0, (16384, 1023), softmax),
    Case("softmax 65536x512", "Softmax", 0, (65536, 512), softmax),
    Case("softmax 4x1000000", "Softmax", 0, (4, 1000000), softmax),
    Case("softmax, max given 1024x8192", "SoftmaxGiven", 0, (1024, 8192), given),
    Case("softmax, max given 16384x4096", "SoftmaxGiven", 0, (16384, 4096), given),
    Case("layer norm 16384x1024", "LayerNorm", 0, (16384, 1024), layer_norm),
    Case("layer norm 16384x768", "LayerNorm", 0, (16384, 768), layer_norm),
    Case("layer norm 16384x1023", "LayerNorm", 0, (16384, 1023), layer_norm),
    Case("layer norm 262144x64", "LayerNorm", 0, (262144, 64), layer_norm),
    Case("layer norm 2048x16384", "LayerNorm", 0, (2048, 16384), layer_norm),
    Case("batch statistics 16384x4096", "Moments", 0, (16384, 4096), moments),
    Case("batch statistics 1024x8192", "Moments", 0, (1024, 8192), moments),
    Case("batch statistics 100000x64", "Moments", 0, (100000, 64), moments),
    Case("batch statistics 1000000x8", "Moments", 0, (1000000, 8), moments),
    Case("batch statistics 64x100000", "Moments", 0, (64, 100000), moments),
    Case("batch statistics 10001x1001", "Moments", 0, (10001, 1001), moments),
    Case("four reductions 32x3136x256", "ColumnsOfSlices", 0, (32, 3136, 256), slices),
    Case("four reductions 8192x49x33", "ColumnsOfSlices", 0, (8192, 49, 33), slices),
)


def bytes_of(k: Kernel) -> int:
    return sum(t.numel() * t.element_size() for t in (*k.operands.values(), *k.outputs))


def graph_us(runs: Sequence[Callable[[], object]], calls: int) -> float:
    """Microseconds a call: `calls` of them, `runs` by turns, in a graph; median of 5 replays."""
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for r in runs:
            r()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                runs[i % len(runs)]()
    graph.replay()
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / calls)
    return statistics.median(times)


def copy_rate() -> float:
    """Bytes read and written a microsecond where PyTorch doubles a large tensor."""
    a, b = (torch.randn(1 << 28, device="cuda") for _ in range(2))
    return 2 * a.numel() * 4 / graph_us([lambda: torch.mul(a, 2.0, out=b)], 4)


def error(outs: Sequence[torch.Tensor], refs: Sequence[torch.Tensor]) -> float:
    pairs = zip(outs, refs, strict=True)
    return max(float((o.double() - r).norm() / r.norm()) for o, r in pairs)


def measure(case: Case, copy: float) -> dict[str, object]:
    e = emitted(case.model)[case.group]
    values = named(e, *case.sizes)
    kernels = [Kernel(e, values, draw(e, values))]
    size, cache = bytes_of(kernels[0]), torch.cuda.get_device_properties(0).L2_cache_size
    for i in range(1, min(max(2, 8 * cache // size + 1), 64)):
        kernels.append(Kernel(e, values, draw(e, values, i)))
    refs, eager = kernels[0].evaluate(torch.float64), kernels[0].evaluate(torch.float32)
    errors = error(kernels[0](), refs), error(eager, refs)
    del refs, eager
    inputs = [[k.operands[n] for n in e.group.inputs if n in k.operands] for k in kernels]
    eagers = [lambda x=x: case.eager(*x) for x in inputs]
    calls = len(kernels) * -(-20 // len(kernels))
    cold, warm = graph_us(kernels, calls), graph_us(kernels[:1], 20)
    eager_cold, eager_warm = graph_us(eagers, calls), graph_us(eagers[:1], 20)
    return {
        "case": case.title,
        "cold_us": round(cold, 2),
        "warm_us": round(warm, 2),
        "gb_s": round(size / cold / 1e3),
        "of_copy": round(size / cold / copy, 3),
        "eager_cold_us": round(eager_cold, 2),
        "eager_warm_us": round(eager_warm, 2),
        "times_eager": round(eager_cold / cold, 2),
        "error": f"{errors[0]:.1e}",
        "eager_error": f"{errors[1]:.1e}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of cases' titles")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--commit", default="", help="what is measured, where git does not know")
    args = parser.parse_args()
    copy = copy_rate()
    print(f"copying a large tensor: {copy / 1e3:.0f} GB/s")
    results = []
    for case in CASES:
        if any(part in case.title for part in args.only):
            results.append(measure(case, copy))
            if len(results) == 1:
                print(" | ".join(f"{k:>{32 if k == 'case' else 9}}" for k in results[0]))
            row = results[-1].items()
            print(" | ".join(f"{v!s:>{32 if k == 'case' else 9}}" for k, v in row), flush=True)
            torch.cuda.empty_cache()
    if args.write:
        stamp = gpu(args.commit) | {"copy_gb_s": str(round(copy / 1e3))}
        Record(HERE / "results" / "h200_rows.csv").write([stamp | r for r in results])


if __name__ == "__main__":
    main()
