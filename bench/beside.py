"""Files of an earlier refold beside today's: the same models, judged and timed in one run.

    python bench/beside.py make FOLDER [--old CHECKOUT] [--target cuda:sm_90] [--only S0 S1]
    python bench/beside.py make FOLDER --target cuda:sm_90 --references KernelBench/level2/1_*.py
    ... --no-tf32: of references that switch TF32 off for convolutions
    python bench/beside.py run FOLDER [--only S0 S1] [--jobs 8] [--output bench/results/beside.csv]

`make` writes FOLDER/NAME/{reference,old,new}.py, the second by the refold of another checkout, if
one is given; it needs no GPU to make files for one. --references: other models than the systems,
named by what their files' names begin with. `run` judges the new file (quick, equality alone),
`--jobs` models side by side, and then times one model at a time with nothing beside it: eager,
torch.compile, the old file and the new one alternately, rounds in random order, in a process of
their own. Up to four such processes compile and warm up side by side first, and then wait for
their turn. A row holds the judge's verdict and seconds, the medians in microseconds, and ratios
with quartiles over the rounds: above 1 the new file is the faster one. `tflops` are the reference's
own products and sums, 10^12 a second, in the new file's time. Models that the output has
rows of, for these files, device and commit, are left out: a run that was broken off goes on.
--no-judge: rows say how far the new file's results are from eager's, and have no verdict.
The last line counts a slower file as eager over the best: `optimize` would have kept the original.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import math
import operator
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import torch
from record import Record, commit, gpu
from systems import CONVOLUTIONS, HERE, PROBLEMS, SUMS, SYSTEMS, machine
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from refold import contract

SAMPLE = ("S0", "S1", "S2", "S3", "S4", "C4", "P2", "P6")
ROUNDS, SUSTAINED_S, WARM = 9, 0.2, 3
BATCH = 4  # so many models are in the device's memory at once, each with its results
READY = "ready"
_NO_TF32 = "\n\nimport torch\n\ntorch.backends.cudnn.allow_tf32 = False\n"
Run = Callable[[], object]


# --- making ---------------------------------------------------------------------------------------
def make(name: str, file: Path, ask: argparse.Namespace, sets: list[str], folder: Path) -> str:
    """Write one model's files; what it says is a line."""
    here, old, target = folder / name, ask.old, ask.target
    here.mkdir(parents=True, exist_ok=True)
    reference = here / "reference.py"
    behind = _NO_TF32 if ask.no_tf32 else ""  # a file may have to begin with a line of its own
    reference.write_text(contract.load(file, sets).source_with_sets + behind)
    said = []
    for side, root in (("old", old), ("new", HERE.parent)):
        made = here / f"{side}.py"
        made.unlink(missing_ok=True)
        if root is None:
            continue
        command = [sys.executable, "-m", "refold", "optimize", str(reference), "-o", str(made)]
        if target != "cpu":  # for the CPU itself the likely file would be timed, judged and kept
            command += ["--target", target]
        command += ["--no-tune", "--no-compile", "--seconds", "0.1"]
        environment = os.environ | {"PYTHONPATH": str(root / "src")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if not made.exists() or done.returncode not in (0, 3, 4):
            return f"{name} {side}: exit {done.returncode}: {done.stderr.strip()[-300:]}"
        said.append(f"{side} {len(made.read_text().splitlines())} lines")
    return f"{name}: {', '.join(said)}"


# --- judging --------------------------------------------------------------------------------------
def judge(folder: Path) -> dict[str, Any]:
    """The quick verdict about the new file; its seconds hold the compilation of its kernels."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "refold", "judge", str(folder / "reference.py")]
    command += [str(folder / "new.py"), "--quick", "--no-timing", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return {"verdict": f"exit {done.returncode}: {done.stderr.strip()[-200:]}"}
    failed = "; ".join(f"{f['test']} ({f['case']})" for f in said["failures"][:2])
    return {"verdict": said["status"], "failed": failed, "judged_s": round(seconds, 1)}


def built(folder: Path) -> dict[str, Any]:
    """In the judge's place: the new file's kernels are compiled, and no more."""
    command = [sys.executable, "-c", _IMPORT, str(folder / "new.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"verdict": _NOT_JUDGED if not done.returncode else done.stderr.strip()[-200:]}


_NOT_JUDGED = "not judged"
_STANDS = ("ACCEPTED", _NOT_JUDGED)
_IMPORT = (
    "from sys import argv; from refold import contract; contract.load(argv[1], (), 'ModelNew')"
)


# --- timing ---------------------------------------------------------------------------------------
def rows_of(folder: Path, modes: Sequence[str], count: int) -> list[dict[str, Any]]:
    """The times of one model, one row a mode, by so many rounds; in the process that calls it.

    It says that it is ready once all is compiled and warm. It times once it has read a line.
    """
    reference = contract.load(folder / "reference.py")
    made = [n for n in ("old", "new") if (folder / f"{n}.py").exists()]
    modules: dict[str, torch.nn.Module] = {
        "eager": reference.make(seed=0),
        **{n: contract.load(folder / f"{n}.py", class_name="ModelNew").make() for n in made},
    }
    inputs = reference.inputs(seed=1)
    if torch.cuda.is_available():
        modules = {name: module.cuda() for name, module in modules.items()}
        inputs = [v.cuda() if isinstance(v, torch.Tensor) else v for v in inputs]
    for name in made:
        modules[name].load_state_dict(modules["eager"].state_dict())
    modules["compile"] = torch.compile(modules["eager"])  # type: ignore[assignment]
    runs = {n: functools.partial(m, *inputs) for n, m in modules.items()}

    def turn(mode: str) -> None:
        for module in modules.values():
            module.train(mode == "train")

    with torch.no_grad():
        for mode in modes:
            turn(mode)
            for run in runs.values():
                for _ in range(WARM):
                    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    print(READY, flush=True)
    sys.stdin.readline()
    found = []
    for mode in modes:
        turn(mode)
        with torch.no_grad():
            rounds = _rounds(runs, count)
        best = [min(pair) for pair in zip(rounds["eager"], rounds["compile"], strict=True)]
        row: dict[str, Any] = {"system": folder.name, "mode": mode}
        row |= {f"{n}_us": round(statistics.median(t) * 1e6, 1) for n, t in rounds.items()}
        if "old" in rounds:
            row |= _ratios("old_to_new", rounds["old"], rounds["new"])
        with torch.no_grad():
            row |= {"difference": _difference(runs["new"](), runs["eager"]())}
            with FlopCounterMode(display=False) as counted:
                runs["eager"]()
        row |= {"tflops": round(counted.get_total_flops() / row["new_us"] / 1e6, 2)}
        row |= {"best_to_eager": round(statistics.median(map(_over, best, rounds["eager"])), 3)}
        found.append(row | _ratios("best_to_new", best, rounds["new"]))
    return found


def _difference(got: Any, wanted: Any) -> float:
    """RMS of the difference of two results over RMS of the second; of several the largest."""
    found = [0.0]
    for a, b in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
        if isinstance(b, torch.Tensor) and b.is_floating_point():
            root = torch.linalg.vector_norm(b.flatten(), dtype=torch.float64)
            off = torch.linalg.vector_norm((a - b).flatten(), dtype=torch.float64)
            found.append(float(off / root))
    return float(f"{max(found):.2e}")


def _rounds(runs: Mapping[str, Run], count: int) -> dict[str, list[float]]:
    """Seconds a call of each side, a number a round."""
    for run in runs.values():
        for _ in range(WARM):
            run()
    rounds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(count):
        for name in random.sample(list(runs), len(runs)):
            rounds[name].append(_sustained(runs[name]))
    return rounds


def _sustained(run: Run) -> float:
    """Seconds a call, back to back."""

    def wait() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    run()
    wait()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < SUSTAINED_S:
        run()
        calls += 1
        if calls % 64 == 0:
            wait()  # the queue must not grow without end
    wait()
    return (time.perf_counter() - start) / calls


_over = operator.truediv


def _ratios(name: str, over: list[float], under: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(map(_over, over, under), n=4)
    found = {name: middle, f"{name}_low": low, f"{name}_high": high}
    return {k: round(v, 3) for k, v in found.items()}


def times(
    folders: Sequence[Path], modes: Sequence[str], count: int
) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """`rows_of` each model in a process of its own: prepared side by side, timed one at a time."""
    command = [sys.executable, __file__, "time", "--rounds", str(count), "--modes", *modes, "--"]
    for first in range(0, len(folders), BATCH):
        with contextlib.ExitStack() as stack:
            started: dict[Path, tuple[subprocess.Popen[str], IO[str]]] = {}
            for folder in folders[first : first + BATCH]:
                said = stack.enter_context(tempfile.TemporaryFile("w+"))
                process = subprocess.Popen(
                    [*command, str(folder)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    text=True,
                )
                started[folder] = stack.enter_context(process), said
            for process, _ in started.values():
                _until_ready(process)
            for folder, (process, errors) in started.items():
                with contextlib.suppress(BrokenPipeError):
                    out = process.communicate("go\n")[0]
                if process.returncode:
                    errors.seek(0)
                    why = errors.read().strip().splitlines()[-1:]
                    yield folder, [{"system": folder.name, "verdict": f"not timed: {why}"}]
                else:
                    yield folder, json.loads(out.splitlines()[-1])


def _until_ready(process: subprocess.Popen[str]) -> None:
    """Read what the process says until it is ready, or has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == READY:
            return


# --- the command ----------------------------------------------------------------------------------
def run(
    folders: list[Path], jobs: int, output: Path, measured: str, ask: argparse.Namespace
) -> int:
    record = Record(output)
    on = gpu(measured) if torch.cuda.is_available() else machine() | {"commit": commit(measured)}
    device = on.get("device") or on.get("processor")
    had = {
        (r.get("system"), r.get("files"), r.get("device") or r.get("processor"), r.get("commit"))
        for r in record.before
    }
    digests = {f: _digest(f) for f in folders}
    left = [f for f in folders if (f.name, digests[f], device, on["commit"]) not in had]
    print(f"{len(left)} of {len(folders)} models to judge and time; {output} has the others")
    with ThreadPoolExecutor(jobs) as pool:
        about = built if ask.no_judge else judge
        verdicts = dict(zip(left, pool.map(about, left), strict=True))
    found: list[dict[str, Any]] = []
    for folder, rows in times(left, ask.modes, ask.rounds):
        for row in rows:
            found.append(verdicts[folder] | row | {"files": digests[folder]} | on)
            print(json.dumps({k: v for k, v in found[-1].items() if k not in on}), flush=True)
        record.write(found)
    stands = [r for r in found if r.get("verdict") in _STANDS and "best_to_new" in r]
    for row in stands:
        row["as_kept"] = row["best_to_new" if row["best_to_new"] >= 1 else "best_to_eager"]
    for name in ("old_to_new", "best_to_new", "as_kept"):
        if ratios := [r[name] for r in stands if name in r]:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            slower = sum(r < 0.97 for r in ratios)
            print(
                f"{name}: geometric mean {mean:.3f}, median {statistics.median(ratios):.3f}, "
                f"{slower} of {len(ratios)} below 0.97 ({device})"
            )
    return 0 if len(stands) == len(found) else 1


def _is_made(folder: Path) -> bool:
    return all((folder / f"{n}.py").exists() for n in ("reference", "new"))


def _digest(folder: Path) -> str:
    files = [f for n in ("reference", "old", "new") if (f := folder / f"{n}.py").exists()]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("make", "run", "time"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--old", type=Path, help="a checkout of the earlier refold")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="sets")
    parser.add_argument("--reduced", action="store_true", help="sizes that a laptop carries")
    parser.add_argument("--no-tf32", action="store_true", help="of fp32 class: TF32 switched off")
    parser.add_argument("--references", nargs="*", type=Path, default=[], metavar="FILE")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--modes", nargs="*", default=["train", "eval"], choices=["train", "eval"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--no-judge", action="store_true", help="difference from eager alone")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "beside.csv")
    parser.add_argument("--commit", default="", help="what is measured, where git does not know")
    args = parser.parse_args()
    if args.step == "time":
        print(json.dumps(rows_of(args.folder, args.modes, args.rounds)))
        return 0
    if args.step == "run":
        there = [f for f in sorted(args.folder.glob("*")) if _is_made(f)]
        folders = [f for f in there if args.only is None or f.name in args.only]
        if not folders:
            asked = " ".join(args.only or ["the models"])
            print(f"{args.folder} has none of {asked}: make them first", file=sys.stderr)
            return 2
        return run(folders, args.jobs, args.output, args.commit, args)
    if args.old is not None and not (args.old / "src" / "refold").is_dir():
        print("--old: expected a checkout of refold, with src/refold in it", file=sys.stderr)
        return 2
    systems = [s for s in (*SYSTEMS, *CONVOLUTIONS, *SUMS) if s.name in (args.only or SAMPLE)]
    chosen: list[tuple[str, Path, Sequence[str]]]
    chosen = [(f.name.partition("_")[0], f, ()) for f in args.references]
    chosen = chosen or [(s.name, PROBLEMS / s.file, s.reduced) for s in systems]

    def write(model: tuple[str, Path, Sequence[str]]) -> str:
        name, file, reduced = model
        sets = [*(reduced if args.reduced else ()), *args.sets]
        said = make(name, file, args, sets, args.folder)
        print(said, flush=True)
        return said

    with ThreadPoolExecutor(args.jobs) as pool:
        said = list(pool.map(write, chosen))
    return 0 if not any(": exit " in s for s in said) else 1


if __name__ == "__main__":
    sys.exit(main())
