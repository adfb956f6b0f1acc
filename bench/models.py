"""Models of libraries by torch.compile(backend="refold"), beside eager and torch.compile, as CSV.

    python bench/models.py [--only gpt2 vit] [--passes inference training generation]
    python bench/models.py --device cuda --size base --output bench/results/gpu_models.csv

Each line is one model in one pass, called as its users call it (bench/library.py). `eager` and
`compile` are their time over refold's, with the quartiles of the latter. `share`: of FLOPs, in
kernels of ours; training has those of forward and backward, too. On a GPU `gpu_share` is the same
of the time of kernels, `gpu_ms` that time (`gpu_ms_compile`: torch.compile's), and `host_ms` the
time until a call is back (bench/gpu_time.py); `peak_gb` and `peak_compile_gb` are what a call needs
at its peak beyond parameters. `error`: refold's error over
eager's against float64, the largest of any floating result (inference) or of the gradient of any
parameter (training), where nothing is dropped out; a ReLU that turns by rounding makes it large.
`result`: whether it is of the very classes that
eager gives. `theirs`: why graphs stay Inductor's. `failed`: what was raised.

Rows are written as they come; a model that has a row of this commit, size, device and dtype is
skipped, so that a run that was broken off goes on (`--again` measures it anew).
"""

from __future__ import annotations

import argparse
import collections
import copy
import datetime
import functools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from gpu_time import gpu_time, peak_gb
from library import MODELS, Call, made
from record import Record, commit
from torch import nn

from refold import measure
from refold.backend import GraphReport, Report, refold
from refold.backend.report import collected
from refold.measure import Side, race

PASSES = ("inference", "training", "generation")
TOKENS = 32  # that are generated
DTYPES = ("float32", "bfloat16")
AUTOCAST = "autocast"  # parameters in float32, calls under autocast to bfloat16
OWN: Mapping[str, Any] = {"backend": functools.partial(refold, options={})}
SIDES: Mapping[str, Mapping[str, Any] | None] = {"eager": None, "compile": {}, "refold": OWN}


# --- results --------------------------------------------------------------------------------------
def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a result, whatever it is made of, each once."""
    found: dict[int, torch.Tensor] = {}
    stack, seen = [value], set()
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        if isinstance(top, torch.Tensor):
            found[id(top)] = top
        elif isinstance(top, Mapping):
            stack += reversed(list(top.values()))
        elif isinstance(top, (list, tuple)):
            stack += reversed(top)
        elif hasattr(top, "__dict__") and not isinstance(top, (type, nn.Module)):
            stack += reversed(list(vars(top).values()))
    return list(found.values())


def classes(value: Any) -> Any:
    """Of what classes a result is made."""
    if isinstance(value, Mapping):
        return type(value), {k: classes(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [classes(v) for v in value]
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape)
    return type(value)


def moved(value: Any, device: str, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, dtype if value.is_floating_point() else value.dtype)


def placed(call: Call, device: str, dtype: torch.dtype) -> Call:
    return {name: moved(value, device, dtype) for name, value in call.items()}


def loss_of(result: Any) -> torch.Tensor:
    """The loss that a model gives, or one of its first result."""
    loss = result.get("loss") if isinstance(result, Mapping) else None
    if loss is not None:
        return loss  # type: ignore[no-any-return]
    first = tensors(result)[0]
    if first.dim() == 2:
        return F.cross_entropy(first.float(), torch.arange(len(first), device=first.device) % 2)
    return first if first.dim() == 0 else first.float().square().mean()


# --- one model in one pass ------------------------------------------------------------------------
@dataclass(frozen=True)
class Run:
    """One side. module: its own copy, compiled in place. call: what is timed."""

    module: nn.Module
    call: Callable[[], Any]


Cast = Callable[[], AbstractContextManager[Any]]  # what a forward runs under


def inference(module: nn.Module, call: Call, cast: Cast = nullcontext) -> Run:
    given = {k: v for k, v in call.items() if k not in ("labels", "return_loss")}
    if getattr(getattr(module, "config", None), "is_encoder_decoder", False):
        given["decoder_input_ids"] = call["labels"]

    def run() -> Any:
        with torch.no_grad(), cast():
            return module(**given)

    return Run(module.eval(), run)


def training(module: nn.Module, call: Call, cast: Cast = nullcontext) -> Run:
    """Forward, backward and an update."""
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4)

    def step() -> Any:
        optimizer.zero_grad()
        with cast():
            result = module(**call)
            loss = loss_of(result)
        torch.autograd.backward(loss)
        optimizer.step()
        return result

    return Run(module, step)


def generation(module: nn.Module, call: Call, cast: Cast = nullcontext) -> Run:
    given = {k: v for k, v in call.items() if k != "labels"}
    settings = {"do_sample": False, "min_new_tokens": TOKENS, "max_new_tokens": TOKENS}

    def run() -> Any:
        generate: Any = module.generate
        with cast():
            return generate(**given, **settings, pad_token_id=0)

    return Run(module.eval(), run)


def errors(sides: Mapping[str, Run], kind: str, call: Call) -> dict[str, float]:
    """Each side's error against float64 over eager's, the largest of all results or gradients."""
    double = copy.deepcopy(sides["eager"].module).double()
    wide = placed(call, next(double.parameters()).device.type, torch.float64)
    exact = {"inference": inference, "training": training}[kind](double, wide)
    truth = _numbers(exact, kind)
    top = max(float(t.norm()) for t in truth if t is not None)
    found = {}
    for name, side in sides.items():
        pairs = zip(_numbers(side, kind), truth, strict=True)
        # what is nothing but rounding counts by the largest of all
        found[name] = [
            float((v.double() - t).norm()) + 1e-7 * top + 1e-30
            for v, t in pairs
            if v is not None and t is not None
        ]
    own = found["eager"]
    return {n: max(a / b for a, b in zip(e, own, strict=True)) for n, e in found.items()}


def _numbers(run: Run, kind: str) -> list[torch.Tensor | None]:
    if kind == "inference":
        return [t.clone() for t in tensors(run.call()) if t.is_floating_point()]
    before = copy.deepcopy(run.module.state_dict())
    run.call()
    found = [None if p.grad is None else p.grad.clone() for p in run.module.parameters()]
    run.module.load_state_dict(before)
    return found


def measured(
    name: str, kind: str, sizes: dict[str, int], device: str, asked: str, seconds: float
) -> dict[str, Any]:
    """The row of a model in a pass. asked: one of DTYPES, or AUTOCAST."""
    dtype = getattr(torch, "float32" if asked == AUTOCAST else asked)
    lower = functools.partial(torch.autocast, device, torch.bfloat16)
    cast: Cast = lower if asked == AUTOCAST else nullcontext
    module, call = made(name, sizes)
    module, call = module.to(device, dtype), placed(call, device, dtype)
    build = {"inference": inference, "training": training, "generation": generation}[kind]
    sides: dict[str, Run] = {}
    results, first = {}, {}
    graphs: list[GraphReport] = []
    for side, settings in SIDES.items():
        torch._dynamo.reset()
        own = copy.deepcopy(module)
        sides[side] = build(own, call, cast)
        if settings is not None:
            own.compile(**settings)
        torch.manual_seed(1)
        start = time.perf_counter()
        with collected() as compiled:
            results[side] = sides[side].call()
            sides[side].call()  # sizes that vary are found at the second
        first[side] = time.perf_counter() - start
        graphs = compiled if side == "refold" else graphs
        own.load_state_dict(module.state_dict())
    report = Report(tuple(graphs))
    print(report, flush=True)
    row: dict[str, Any] = {"share": f"{report.share():.2f}"}
    if kind == "training":
        row |= {k: f"{report.share(k):.2f}" for k in ("forward", "backward")}
    same = classes(results["refold"]) == classes(results["eager"])
    row["result"] = "the same" if same else "of other classes"
    if kind == "generation":
        alike = torch.equal(results["refold"], results["eager"])
        row["result"] = "the same" if alike else "other tokens"
    elif not (kind == "training" and MODELS[name].draws):
        found = errors(sides, kind, call)
        row |= {"error": f"{found['refold']:.2f}", "error_compile": f"{found['compile']:.2f}"}
    bases = {n: Side(sides[n].call) for n in ("eager", "compile")}
    timing = race(bases, sides["refold"].call, device, seconds)
    mine, theirs = (sum(g.compiling[i] for g in graphs) for i in (0, 1))
    if device == "cuda":
        row |= gpu_time(sides["refold"].call)
        row["gpu_ms_compile"] = gpu_time(sides["compile"].call)["gpu_ms"]
        row["peak_gb"], row["peak_compile_gb"] = (
            peak_gb(sides[n].module, sides[n].call) for n in ("refold", "compile")
        )
    return row | {
        "eager": f"{timing['eager'].ratio:.3f}",
        "compile": f"{timing['compile'].ratio:.3f}",
        "low": f"{timing['compile'].low:.3f}",
        "high": f"{timing['compile'].high:.3f}",
        "refold_ms": f"{timing['compile'].other * 1e3:.3f}",
        "graphs": str(len(graphs)),
        "ours": str(sum(g.by == "refold" for g in graphs)),
        "engine_s": f"{mine:.1f}",
        "compiling_s": f"{theirs:.1f}",
        "first_compile_s": f"{first['compile']:.1f}",
        "first_refold_s": f"{first['refold']:.1f}",
        "theirs": reasons(graphs) if graphs else "Dynamo captured no graph",
    }


def reasons(graphs: Sequence[GraphReport]) -> str:
    """Why graphs stay Inductor's, and of how many that is said."""
    found = collections.Counter(f"{g.kind}: {g.reason}" for g in graphs if g.by != "refold")
    return "; ".join(f"{n} {reason}" for reason, n in found.items())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--passes", nargs="*", choices=PASSES, default=PASSES)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=(*DTYPES, AUTOCAST), default="float32")
    parser.add_argument("--size", choices=("small", "base"), default="small")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="of its sizes")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each comparison")
    parser.add_argument("--again", action="store_true", help="measure what has a row already, too")
    parser.add_argument(
        "--processor",
        action="store_true",
        help="one thread, and count the processor's seconds: for a CPU that others use, too",
    )
    parser.add_argument("--output", type=Path, metavar="CSV")
    asked = parser.parse_args()
    if asked.processor:
        torch.set_num_threads(1)
        measure.timer = time.process_time
    given = {k: int(v) for k, _, v in (one.partition("=") for one in asked.set)}
    device = torch.cuda.get_device_name() if asked.device == "cuda" else "cpu"
    record = Record(
        asked.output or Path(__file__).parent / "results" / f"{asked.device}_models.csv"
    )
    found: list[dict[str, Any]] = []
    for name in asked.only:
        for kind in asked.passes:
            if kind == "generation" and not MODELS[name].generates:
                continue
            sizes = dict(getattr(MODELS[name], asked.size))
            sizes |= {k: v for k, v in given.items() if k in sizes}
            key = {
                "model": name,
                "pass": kind,
                "sizes": " ".join(f"{k}={v}" for k, v in sizes.items()),
                "dtype": asked.dtype,
                "device": device,
                "clock": "processor" if asked.processor else "",
                "commit": commit(),
            }
            if not asked.again and any(key.items() <= row.items() for row in record.before):
                continue
            try:
                row = measured(name, kind, sizes, asked.device, asked.dtype, asked.seconds)
            except Exception as error:  # the next model does not wait for it
                said = (str(error).strip().splitlines() or ["no message"])[0]
                row = {"failed": f"{type(error).__name__}: {said[:200]}"}
            key |= {"date": datetime.date.today().isoformat(), "torch": torch.__version__}
            found.append(key | {"threads": str(torch.get_num_threads())} | row)
            record.write(found)
            print({"model": name, "pass": kind} | row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
