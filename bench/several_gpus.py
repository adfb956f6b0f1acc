"""Training on all GPUs of a host behind backend="refold", checked and timed, as CSV.

    python bench/several_gpus.py [--only gpt_ddp_around emitted] [--within 190]
    python bench/several_gpus.py --device cpu --every  # two processes by gloo, at small sizes

Each line is a part: a model (an MLP, six GPT blocks, in fp32), DistributedDataParallel or
fully_shard, around the compiled module or inside what is compiled. One device that takes all ranks'
rows in turn is what it is compared with: `losses` over `--steps` steps are the same where they
differ from its (`loss_gap`) no more than four times what another order of rows does there
(`order_gap`). `error`, `error_end`: the largest error of the gradient of any parameter over
eager's, against float64, at the first step and behind the last. `checkpoint`: whether one device
reads what all saved; `gap_behind`: how far its next losses are from one device's. `compile`: a step
of torch.compile's over one of refold's, with quartiles. `peak_gb`: of a device, beside
`peak_compile_gb`. `theirs`: why graphs are Inductor's.

The part `emitted` calls a fast module on a second device, from a thread for each device, copied
between devices, and under DataParallel.

Rows are written as they come; a part that has a row of this commit, device, number of devices and
sizes is left out, so that a run that was broken off goes on (`--again` measures it anew). A part in
which a process fails, or that takes longer than `--limit`, is a row that says so, and the next
begins in new processes. Behind `--within` seconds all is ended, and what is left is named.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from record import HERE, Record, commit

# no NVLink multicast: where it fails, it puts GPUs of a shared host out of service
QUIET = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
SIZES: Mapping[str, Mapping[str, dict[str, int]]] = {
    "cuda": {
        "mlp": {"rows": 8192, "width": 4096},
        "gpt": {"rows": 8, "tokens": 1024, "width": 768, "blocks": 6, "words": 8192},
        "emitted": {"rows": 4096, "width": 2048},
    },
    "cpu": {
        "mlp": {"rows": 32, "width": 64},
        "gpt": {"rows": 2, "tokens": 16, "width": 64, "blocks": 6, "words": 64},
        "emitted": {"rows": 64, "width": 64},
    },
}
EMITTED = "emitted"
PARTS = (
    *("gpt_ddp_around", "mlp_ddp_around", EMITTED, "gpt_fsdp_around", "mlp_fsdp_around"),
    *("mlp_ddp_inside", "mlp_fsdp_inside", "gpt_fsdp_inside", "gpt_ddp_inside"),
)


class Ended(Exception):
    """A group of processes came to an end; the text says why."""


class Group:
    """Processes, one a device, which do parts in turn and tell of each."""

    def __init__(self, asked: argparse.Namespace, parts: Sequence[str]) -> None:
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        here = Path(self.folder.name)
        share = max(1, len(os.sched_getaffinity(0)) // asked.world)
        environment = os.environ | QUIET | {"OMP_NUM_THREADS": str(share)}
        command = [sys.executable, str(HERE / "together.py"), "--device", asked.device]
        command += ["--meet", str(here / "met"), "--world", str(asked.world)]
        command += ["--steps", str(asked.steps), "--rounds", str(asked.rounds)]
        command += ["--every"] * asked.every
        self.told: queue.Queue[str] = queue.Queue()
        self.errors = [here / f"{rank}.err" for rank in range(asked.world)]
        self.running = []
        for rank, path in enumerate(self.errors):
            with path.open("w") as error:
                process = subprocess.Popen(
                    [*command, "--rank", str(rank), *parts],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=error,
                    text=True,
                )
            self.running.append(process)
            threading.Thread(target=self._listen, args=(rank,), daemon=True).start()

    def _listen(self, rank: int) -> None:
        stream = self.running[rank].stdout
        assert stream is not None
        for line in stream:
            if line.startswith("{"):  # libraries have their say there, too
                self.told.put(line)
        if self.running[rank].wait() != 0:  # the others would wait for it
            self.told.put("")

    def row(self, limit: float) -> dict[str, Any]:
        """The next part's. Raises Ended where a process fails, or none comes in time."""
        try:
            line = self.told.get(timeout=max(limit, 0.0))
        except queue.Empty:
            raise Ended(f"no end within {limit:.0f} s") from None
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        lost = [r for r, p in enumerate(self.running) if p.poll() not in (None, 0)]
        text = self.errors[lost[0]].read_text()
        print(text[-4000:], file=sys.stderr)
        last = (text.strip().splitlines() or [""])[-1]
        raise Ended(f"rank {lost[0]}: {last[:200]}")

    def end(self) -> None:
        for process in self.running:
            process.kill()
        for process in self.running:
            process.wait()
        self.folder.cleanup()


def told(name: str, sizes: Mapping[str, int]) -> str:
    """A part, as together.py reads it."""
    return f"{name}:" + ",".join(f"{k}={v}" for k, v in sizes.items())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--world", type=int, help="how many devices (default: all GPUs, or 2)")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="of its sizes")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7, help="of timing")
    parser.add_argument("--every", action="store_true", help="take ours of every graph we can read")
    parser.add_argument("--within", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="of a part")
    parser.add_argument("--again", action="store_true", help="measure what has a row already, too")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "several_gpus.csv")
    asked = parser.parse_args()
    began = time.perf_counter()
    if asked.world is None:
        asked.world = torch.cuda.device_count() if asked.device == "cuda" else 2
    if asked.world < 2:
        print(f"two devices are needed, there are {asked.world}", file=sys.stderr)
        return 2
    device = torch.cuda.get_device_name() if asked.device == "cuda" else "cpu"
    given = {k: int(v) for k, _, v in (one.partition("=") for one in asked.set)}
    record = Record(asked.output)
    keys, parts = {}, {}
    for name in asked.only:
        sizes = SIZES[asked.device][name.partition("_")[0]]
        sizes = {k: given.get(k, v) for k, v in sizes.items()}
        parts[name] = told(name, sizes)
        keys[name] = {
            "part": name,
            "sizes": " ".join(f"{k}={v}" for k, v in sizes.items()),
            "every": str(asked.every),
            "device": device,
            "devices": str(asked.world),
            "steps": str(asked.steps),
            "commit": commit(),
        }
    had = [n for n, key in keys.items() if any(key.items() <= row.items() for row in record.before)]
    left = [n for n in parts if asked.again or n not in had]
    about = {"date": datetime.date.today().isoformat(), "torch": torch.__version__}
    found: list[dict[str, Any]] = []
    while left and time.perf_counter() - began < asked.within:
        group = Group(asked, [parts[n] for n in left])
        try:
            while left:
                rest = asked.within - (time.perf_counter() - began)
                row: dict[str, Any]
                try:
                    row = group.row(min(asked.limit, rest))
                except Ended as why:
                    if rest <= asked.limit and time.perf_counter() - began >= asked.within:
                        break  # it had no chance to come to its end
                    row = {"failed": str(why)}
                name = left.pop(0)
                found.append(keys[name] | about | row)
                record.write(found)
                print(json.dumps({"part": name} | row), flush=True)
                if "failed" in row:
                    break
        finally:
            group.end()
    if left:
        print(f"left, for the same command again: {' '.join(left)}")
    wrong = [r["part"] for r in found if not _is_right(r)]
    print(f"{len(found)} parts in {time.perf_counter() - began:.0f} s; wrong: {wrong or 'none'}")
    return 1 if wrong else 0


def _is_right(row: Mapping[str, Any]) -> bool:
    same = all(row.get(k, "the same") == "the same" for k in ("losses", "checkpoint"))
    return "failed" not in row and same


if __name__ == "__main__":
    sys.exit(main())
