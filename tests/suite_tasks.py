"""Tasks for tests of the suite that need no model: each file is run as it is, and says its report.

`python suite_tasks.py JSON` stands for `python -m refold.suite.work JSON`.
`python suite_tasks.py run FOLDER OUTPUT JOBS` runs the suite of a folder with it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

OWN = Path(__file__).resolve()
MODE = {
    "mode": "both",
    "label": "reals",
    "folds": False,
    "fold_s": 0.0,
    "eager_s": 4e-3,
    "ours_s": 1e-3,
    "compile_s": 2e-3,
    "ratio": 4.0,
    "ratio_quartiles": [3.5, 4.5],
    "ratio_to_compile": 2.0,
    "best": "torch.compile",
    "best_s": 2e-3,
    "ratio_to_best": 2.0,
    "speedup_to_best": 2.0,
    "break_even_calls": 0,
    "prepared_bytes": 0,
    "floor_s": 5e-4,
}


def report(**more: object) -> dict[str, object]:
    """What `refold optimize --json` says of a model that became faster."""
    mode = MODE | more
    facts = {"modes": [{k: mode[k] for k in ("mode", "label", "folds")}], "by_timing": False}
    facts |= {"rejected": "", "verdict": "ACCEPTED", "assumptions": []}
    facts |= {"errors": {"both": {"candidate": 1e-7, "eager": 2e-7}}}
    facts |= {"task": {"kind": "ordinary", "reasons": []}}
    return {"facts": facts, "modes": [mode]}


def work() -> None:
    """One task: its file may set `code` and `found`, or do what no task should."""
    spec = json.loads(sys.argv[1])
    Path(spec["step"]).write_text("running")
    space: dict[str, object] = {"code": 0, "found": report()}
    exec(Path(spec["path"]).read_text(), space)
    Path(spec["output"]).write_text("# fast\n")
    said = {"code": space["code"], "sets": spec["sets"], "report": space["found"]}
    Path(f"{spec['report']}.partial").write_text(json.dumps(said))
    os.replace(f"{spec['report']}.partial", spec["report"])


class Quiet:
    """Shows nothing, keeps the rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.most = 0

    def begin(self, tasks: int, had: int, jobs: int) -> None:
        self.had = had

    def row(self, row: dict[str, object]) -> None:
        self.rows.append(row)

    def look(self, running: list[object], waiting: int) -> None:
        self.most = max(self.most, len(running))


def run(
    folder: str | Path,
    output: str | Path,
    jobs: int = 1,
    anew: tuple[str, ...] = (),
    **limits: float,
) -> Quiet:
    """The suite of a folder, by `work`."""
    from refold.suite.here import Here
    from refold.suite.leases import Device
    from refold.suite.rows import Record
    from refold.suite.run import run as suite
    from refold.suite.tasks import Ask, find

    ask = Ask(**{"seconds": 60.0, "memory": 1 << 30, **limits})  # type: ignore[arg-type]
    devices = [Device((f"test-{os.getpid()}-{i}",)) for i in range(jobs)]
    command = (sys.executable, "-I", "-S", str(OWN))
    record, quiet = Record(Path(output)), Quiet()
    try:
        place = Here(ask, devices, Path(output, "files"), Path(output, "logs"), command)
        suite(find([folder]), ask, record, place, quiet, anew)  # type: ignore[arg-type]
    finally:
        record.close()
    return quiet


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        work()
