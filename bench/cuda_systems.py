"""The five systems on an NVIDIA GPU, judged: eager, torch.compile (default and max-autotune) and
refold alternately in one process, as CSV.

    python bench/cuda_systems.py [--float32 ieee tf32] [--only S0 S1] [--set batch_size=64] [--tune]
                                 [--output bench/results/h200_systems.csv]
    python bench/cuda_systems.py --only C0 C1 C2 C3 C4 C5 C6
                                 --output bench/results/h200_convolutions.csv
    python bench/cuda_systems.py --only V0 V1 V2 V3 --output bench/results/h200_values.csv
    python bench/cuda_systems.py --dtype bfloat16 float16 --output bench/results/h200_dtypes.csv

--dtype: the same systems with parameters and inputs of other dtypes.

sustained: back to back for a quarter of a second at a time, rounds in random order, median over
rounds; it holds the clock that the power limit leaves. cold: one call after the second-level cache
was overwritten, by events, the queue never empty. host: time to enqueue one call. floor: by the
rates of the device at best. graph: of 20 calls in one CUDA graph, replayed back to back: what
the device takes without the host. A number stands only where the judge accepted the file in the
same run.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from record import Record, gpu
from systems import CONVOLUTIONS, HERE, PROBLEMS, SUMS, SYSTEMS, VALUES, System
from torch._inductor import async_compile

from refold import contract, introspect, pipeline
from refold.derive import Options, derive
from refold.planner import floor

Run = Callable[[], object]
ROUNDS, SUSTAINED_S, COLD, HOST_S, GRAPHED = 5, 0.25, 15, 0.5, 20


_CAST = '''

Float32Model, float32_inputs = Model, get_inputs


class Model(Float32Model):
    """The same in {dtype}."""

    def __init__(self, *args):
        super().__init__(*args)
        self.to(torch.{dtype})


def get_inputs():
    return [x.to(torch.{dtype}) for x in float32_inputs()]
'''


@dataclass(frozen=True)
class Case:
    """One system in one dtype; float32: "ieee" or "tf32". folder: where its files are made."""

    system: System
    dtype: str
    float32: str
    folder: Path

    @property
    def name(self) -> str:
        kind = self.float32 if self.dtype == "float32" else self.dtype
        return f"{Path(self.system.file).stem}_{kind}"

    @property
    def problem(self) -> Path:
        if self.dtype == "float32":
            return PROBLEMS / self.system.file
        made = self.folder / f"{self.name}_problem.py"
        made.write_text((PROBLEMS / self.system.file).read_text() + _CAST.format(dtype=self.dtype))
        return made

    @property
    def emitted(self) -> Path:
        return self.folder / f"{self.name}.py"


def optimize(case: Case, sets: list[str], tuned: bool) -> dict[str, Any]:
    """One `refold optimize`; its JSON report with the exit code added."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "refold", "optimize", str(case.problem)]
    command += ["-o", str(case.emitted), "--json", "--seconds", "1", "--float32", case.float32]
    command += [] if tuned else ["--no-tune"]
    for pair in sets:
        command += ["--set", pair]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"{case.name}: made and judged in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    if done.returncode not in (0, 3):
        return {"exit": done.returncode, "error": done.stderr.strip().splitlines()[-1:]}
    return json.loads(done.stdout) | {"exit": done.returncode}


def sustained(run: Run) -> float:
    """Seconds a call, back to back."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < SUSTAINED_S:
        for _ in range(8):
            run()
        calls += 8
        if calls % 64 == 0:
            torch.cuda.synchronize()  # the queue must not grow without end
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def cold(run: Run, flush: torch.Tensor) -> float:
    """Seconds of one call that finds nothing in the second-level cache."""
    found = []
    for _ in range(COLD):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(found)


def host(run: Run) -> float:
    """Seconds to enqueue one call, the device being far behind or idle."""
    best, began = float("inf"), time.perf_counter()
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            run()
        best = min(best, (time.perf_counter() - start) / 20)
        if start - began > HOST_S:
            break
    torch.cuda.synchronize()
    return best


def graphed(run: Run) -> float | None:
    """Seconds a call in a CUDA graph, replayed back to back; None where it cannot be captured."""
    run()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(GRAPHED):
                run()
    except RuntimeError as error:
        print(f"no CUDA graph: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    return sustained(graph.replay) / GRAPHED


def sides(
    model: torch.nn.Module, fast: torch.nn.Module, inputs: list[Any], autotune: bool
) -> dict[str, Run]:
    """What is compared, warmed up."""
    torch._dynamo.reset()
    runs: dict[str, Callable[..., object]] = {
        "eager": model,
        "compile": torch.compile(model),
        "refold": fast,
    }
    if autotune:
        runs["autotune"] = torch.compile(model, mode="max-autotune")
    for name, run in list(runs.items()):
        try:
            for _ in range(3):
                run(*inputs)
        except Exception as error:
            print(f"{name} is left out: {type(error).__name__}", file=sys.stderr)
            del runs[name]
    # they were started to compile in, and would go on beside what is timed: importing PyTorch
    async_compile.shutdown_compile_workers()
    return {name: functools.partial(run, *inputs) for name, run in runs.items()}


def measured(runs: dict[str, Run]) -> dict[str, Any]:
    """The figures of one mode."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    rounds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name in random.sample(list(runs), len(runs)):
            rounds[name].append(sustained(runs[name]))
    row: dict[str, Any] = {}
    for name, run in runs.items():
        row[f"{name}_us"] = statistics.median(rounds[name]) * 1e6
        row[f"{name}_cold_us"] = cold(run, flush) * 1e6
        row[f"{name}_host_us"] = host(run) * 1e6
    in_graph = graphed(runs["refold"])
    row["refold_graph_us"] = in_graph and in_graph * 1e6
    best = [min(each) for each in zip(*(rounds[n] for n in rounds if n != "refold"), strict=True)]
    ratios = sorted(b / r for b, r in zip(best, rounds["refold"], strict=True))
    row["speedup"] = statistics.median(ratios)
    row["speedup_low"], row["speedup_high"] = ratios[1], ratios[-2]
    return row


def floor_us(module: torch.nn.Module, inputs: list[Any], training: bool, dtype: str) -> float:
    """What the device's rates allow at best, in microseconds."""
    _, device = pipeline.target_for(pipeline.default_target(), "ieee")
    derivations = derive(module, inputs, device, Options())
    chosen = derivations[0] if training or len(derivations) == 1 else derivations[1]
    assert chosen.optimized is not None
    return floor(chosen.optimized.graph, device.at(getattr(torch, dtype))) * 1e6


def rows(
    case: Case, sets: list[str], report: dict[str, Any], autotune: bool
) -> list[dict[str, Any]]:
    """The rows of one system, one a mode; `report` is of the file made for it."""
    base = {"system": case.system.name, "dtype": case.dtype, "float32": case.float32}
    base |= {"sizes": " ".join(sets) or "full size", "exit": report["exit"]}
    if "modes" not in report:
        return [base | {"verdict": report.get("reason") or report.get("error")}]
    torch.set_float32_matmul_precision("high" if case.float32 == "tf32" else "highest")
    reference, candidate = contract.load(case.problem, sets), contract.load(case.emitted, sets)
    model = reference.make(seed=0).cuda()
    fast = pipeline.adopt(candidate.namespace["ModelNew"], model)
    inputs = [v.cuda() if isinstance(v, torch.Tensor) else v for v in reference.inputs(seed=1)]
    found = []
    for mode in report["modes"]:
        if mode.get("kept"):
            found.append(base | {"mode": mode["mode"], "verdict": f"kept: {mode['kept']}"})
            continue
        training = mode["mode"] != "eval"
        with torch.no_grad():
            for m in (model, fast):
                m.train(training)
            problem = introspect.fallback_reason(fast, inputs)
            if problem is not None:
                found.append(base | {"mode": mode["mode"], "verdict": f"fell back: {problem}"})
                continue
            row = measured(sides(model, fast, inputs, autotune))
        error = report["errors"].get(mode["mode"]) or {}
        lowest = None
        if case.float32 == "ieee":
            lowest = floor_us(model, inputs, training, case.dtype)
        row |= {"floor_us": lowest, "of_floor": lowest and lowest / row["refold_us"]}
        row |= {"error": error.get("candidate"), "eager_error": error.get("eager")}
        row |= {"prepared_bytes": mode["prepared_bytes"], "build_s": report["build_s"]}
        found.append(base | {"mode": mode["mode"], "verdict": report["verdict"]} | row)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--float32", nargs="*", default=["ieee", "tf32"])
    parser.add_argument("--dtype", nargs="*", default=["float32"])
    parser.add_argument("--only", nargs="*", default=[s.name for s in SYSTEMS])
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "h200_systems.csv")
    parser.add_argument("--jobs", type=int, default=1, help="files made and judged at a time")
    parser.add_argument("--no-autotune", action="store_true", help="without max-autotune")
    parser.add_argument("--tune", action="store_true", help="schedules by timing, not by rule")
    parser.add_argument("--commit", default="", help="what is measured, where git does not know")
    parser.add_argument("--keep", type=Path, help="folder for the emitted files")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("PyTorch finds no CUDA device", file=sys.stderr)
        return 1
    found: list[dict[str, Any]] = []
    record = Record(args.output)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        systems = [s for s in (*SYSTEMS, *CONVOLUTIONS, *VALUES, *SUMS) if s.name in args.only]
        # of other dtypes --float32 decides nothing
        kinds = [(d, f) for d in args.dtype for f in args.float32 if d == "float32" or f == "ieee"]
        cases = [Case(s, d, f, folder) for d, f in kinds for s in systems]
        # one system is timed at a time, with nothing beside it: of several jobs, after all files
        # were made and judged
        with ThreadPoolExecutor(args.jobs) as pool:
            make = functools.partial(optimize, sets=args.sets, tuned=args.tune)
            reports: Iterable[dict[str, Any]] = map(make, cases)
            if args.jobs > 1:
                reports = list(pool.map(make, cases))
        for case, report in zip(cases, reports, strict=True):
            for row in rows(case, args.sets, report, not args.no_autotune):
                found.append(row | gpu(args.commit))
                print(json.dumps(row), flush=True)
            record.write(found)
    for row in found:
        words = (
            f"{row['refold_us']:.1f} us, {row['speedup']:.2f}x the best of the others,"
            f" error {row['error']:.1e} ({row['eager_error']:.1e})"
            if "refold_us" in row
            else ""
        )
        kind = f"{row['dtype']} {row['float32']}" if row["dtype"] == "float32" else row["dtype"]
        print(f"{row['system']} {kind} {row.get('mode', '')} {row['verdict']} {words}")
    return 0 if all(r["exit"] == 0 for r in found) else 1


if __name__ == "__main__":
    sys.exit(main())
