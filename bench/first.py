"""How long an emitted file takes from `import torch` to its first result.

python bench/first.py FAST.py [--built FOLDER] [--rounds N]

In a new process each: compiled at the import, found in the cache, and built (`refold build`) with
no compiler and no cache. The weights, which the original would need as well, are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import refold

RUN = """
import importlib, json, sys, time
import torch
begun = time.perf_counter()
emitted = importlib.import_module(sys.argv[1])
imported = time.perf_counter()
device = "cuda" if emitted._refold_file.kind == "cuda" else "cpu"
model = emitted.ModelNew(*emitted.get_init_inputs()).eval().to(device)
inputs = [x.to(device) for x in emitted.get_inputs()]
synchronise = torch.cuda.synchronize if device == "cuda" else int
synchronise()
ready = time.perf_counter()
with torch.no_grad():
    model(*inputs)
    synchronise()
    done = time.perf_counter()
print(json.dumps([imported - begun, done - ready, emitted._refold_problem]))
"""


def once(folder: Path, name: str, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of the import and of the first result."""
    run = [sys.executable, "-B", "-c", RUN, name]
    # where it stands Python looks first
    done = subprocess.run(
        run, cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    imported, first, problem = json.loads(done.stdout)
    if problem is not None:
        raise SystemExit(f"no kernels: {problem}")
    return imported, first


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("file", type=Path)
    asked.add_argument("--built", type=Path)
    asked.add_argument("--rounds", type=int, default=3)
    args = asked.parse_args()
    name, rows = args.file.stem, dict[str, list[tuple[float, float]]]()
    bare = {n: v for n, v in os.environ.items() if n.startswith(("LD_", "CUDA", "OMP", "ATEN"))}
    with tempfile.TemporaryDirectory(prefix="refold_first_") as made:
        once(args.file.parent, name, dict(os.environ))  # PyTorch's own files are read once
        for i in range(args.rounds):
            cached = os.environ | {"REFOLD_CACHE": f"{made}/{i}"}
            for words in ("compiled", "cached"):
                rows.setdefault(words, []).append(once(args.file.parent, name, cached))
            if args.built:
                nothing = bare | {"PATH": "/nonexistent", "HOME": "/nonexistent"}
                rows.setdefault("built", []).append(once(args.built, name, nothing))
    print(f"refold {refold.__version__}, {args.rounds} rounds, medians in seconds")
    for words, times in rows.items():
        imported, first = (statistics.median(column) for column in zip(*times, strict=True))
        both = statistics.median(map(sum, times))
        print(f"{words:9}  import {imported:7.3f}  first result {first:6.3f}  both {both:7.3f}")


if __name__ == "__main__":
    main()
