"""The five systems on this machine: eager, torch.compile and refold in one run, judged, as CSV.

    python bench/systems.py [--reduced] [--output bench/results/cpu.csv] [--seconds 10]
    python bench/systems.py --only S2 --set batch_size=2048 --output /tmp/s2.csv
    python bench/systems.py --only C0 C1 C2 C3 C4 C5 C6 --output bench/results/cpu_convolutions.csv
    python bench/systems.py --only P0 P1 P2 P3 P4 P5 P6 P7 --output bench/results/cpu_sums.csv

Each line is one mode of one system. A number stands only where the same run's judge accepted the
file; rows are added to those that the output has. `--reduced` takes smaller sizes where the full
ones need minutes or much memory; `--set` takes the sizes given, for every system asked for.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from record import Record, commit

HERE = Path(__file__).resolve().parent
PROBLEMS = HERE.parent / "problems"


@dataclass(frozen=True)
class System:
    """A problem file, the smaller sizes that a laptop carries in seconds, and those at which eager
    takes about a tenth of a second there."""

    name: str
    file: str
    reduced: tuple[str, ...] = ()
    small: tuple[str, ...] = ()


_HALF = "batch_size=512", "in_features=4096", "out_features=4096"
SYSTEMS = (
    System("S0", "s0_sum_chain.py", (), _HALF),
    System("S1", "s1_avgpool_gelu_max.py", (), _HALF),
    System("S2", "s2_scale_batchnorm.py", ("batch_size=4096",), ("batch_size=512",)),
    System("S3", "s3_batchnorm_softmax.py", (), _HALF),
    System(
        "S4",
        "s4_sigmoid_sum.py",
        ("in_features=8192", "out_features=8192"),
        _HALF,
    ),
)
CONVOLUTIONS = (
    System("C0", "../bench/convolutions/transposed_mean.py"),
    System("C1", "../bench/convolutions/convolution_mean.py"),
    System("C2", "../bench/convolutions/residual_block.py"),
    System("C3", "../bench/convolutions/volume_mean.py"),
    System("C4", "../bench/convolutions/pooled_upsampling.py"),
    System("C5", "../bench/convolutions/pooled_convolution.py"),
    System("C6", "../bench/convolutions/mean_over_depth.py"),
)
VALUES = (  # what two inputs make, and long rows
    System("V0", "../bench/values/batch.py"),
    System("V1", "../bench/values/attention.py"),
    System("V2", "../bench/values/outer.py"),
    System("V3", "../bench/values/vocabulary.py"),
)
SUMS = (  # of several values, of some tokens, of all
    System("P0", "../bench/sums/two_inputs.py"),
    System("P1", "../bench/sums/ensemble.py"),
    System("P2", "../bench/sums/attention_pool.py"),
    System("P3", "../bench/sums/last_token.py"),
    System("P4", "../bench/sums/residual_mean.py"),
    System("P5", "../bench/sums/last_token_attention.py"),
    System("P6", "../bench/sums/recurrence.py"),
    System("P7", "../bench/sums/same_map.py"),
)


def optimize(
    system: System,
    sets: Sequence[str],
    seconds: float,
    output: Path,
    limit: float | None = None,
    more: Sequence[str] = (),
) -> dict[str, Any]:
    """One `refold optimize` of at most `limit` seconds; its JSON report and exit code."""
    command = [sys.executable, "-m", "refold", *arguments(system, sets, seconds, output, more)]
    # a session of its own, so that what hangs ends with the processes that it started
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as running:
        try:
            out, said = running.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return {"exit": 124, "error": f"no end after {limit:.0f} s"}
    return reported(running.returncode, out, said)


def arguments(
    system: System, sets: Sequence[str], seconds: float, output: Path, more: Sequence[str] = ()
) -> list[str]:
    """Of the command line, for one system."""
    told = ["optimize", str(PROBLEMS / system.file), "-o", str(output), "--json"]
    return [*told, "--seconds", str(seconds), *more, *(a for pair in sets for a in ("--set", pair))]


def reported(code: int | None, out: str, said: str) -> dict[str, Any]:
    """What `refold optimize` reported, and its exit code; or its last words."""
    if code not in (0, 3):
        return {"exit": 1 if code is None else code, "error": said.strip().splitlines()[-1:]}
    report: dict[str, Any] = json.loads(out)
    return report | {"exit": code}


def rows(system: System, report: dict[str, Any], sets: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One row for each mode of a report."""
    sizes = " ".join(sets) or "full size"
    base = {"system": system.name, "sizes": sizes, "exit": report["exit"]}
    if "modes" not in report:
        yield base | {"verdict": report.get("reason") or report.get("error")}
        return
    if report["exit"] == 3 and not any(m.get("kept") for m in report["modes"]):
        yield base | {"verdict": report["reason"]}
        return
    for mode in report["modes"]:
        if mode.get("kept"):
            kept = {"mode": mode["mode"], "verdict": f"kept: {mode['kept']}"}
            yield base | kept | beside(mode)
            continue
        error = report["errors"].get(mode["mode"]) or {}
        yield base | {
            "mode": mode["mode"],
            "verdict": report["verdict"],
            "promise": mode["label"],
            "error": error.get("candidate"),
            "eager_error": error.get("eager"),
            **beside(mode),
            "speedup": mode["ratio"],
            "speedup_low": mode["ratio_quartiles"][0],
            "speedup_high": mode["ratio_quartiles"][1],
            "to_compile": mode["ratio_to_compile"],
            "fold_ms": mode["fold_s"] * 1e3,
            "break_even_calls": mode["break_even_calls"],
            "algebra_s": report["algebra_s"],
            "build_s": report["build_s"],
        }


def beside(mode: dict[str, Any]) -> dict[str, Any]:
    """The times of one mode, if it was timed. to_best: how many times as fast as the best baseline
    what was written is: refold, or eager where the original is kept."""
    if "best" not in mode:
        return {}
    return {
        "eager_ms": mode["eager_s"] * 1e3,
        "compile_ms": mode["compile_s"] and mode["compile_s"] * 1e3,
        "refold_ms": mode["ours_s"] * 1e3,
        "best": mode["best"],
        "to_best": mode["speedup_to_best"],
    }


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "date": datetime.date.today().isoformat(),
        "processor": platform.processor() or platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "commit": commit(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reduced", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "cpu.csv")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="sets")
    parser.add_argument("--only", nargs="*", default=[s.name for s in SYSTEMS])
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    record = Record(args.output)
    with tempfile.TemporaryDirectory() as folder:
        for system in (s for s in (*SYSTEMS, *CONVOLUTIONS, *SUMS) if s.name in args.only):
            sets = (*(system.reduced if args.reduced else ()), *args.sets)
            report = optimize(system, sets, args.seconds, Path(folder, f"{system.name}.py"))
            for row in rows(system, report, sets):
                found.append(row | machine())
                print(json.dumps(row), flush=True)
            record.write(found)
    print(f"{len(found)} rows in {args.output}")
    return 0 if all(r["exit"] == 0 for r in found) else 1


if __name__ == "__main__":
    sys.exit(main())
