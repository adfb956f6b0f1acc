"""One task, in a process of its own: sizes, `refold optimize`, and its report as JSON.

    python -m refold.suite.work JSON

The JSON: path, sets, options (of `refold optimize`), secret (the judge's), eager_seconds, output
(the file to write), report (where the report goes, whole or not at all) and step (where it is told
what is begun).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: do not outlive the supervisor
    spec = json.loads(sys.argv[1])
    told = Path(spec["step"])

    def step(text: str, part: str = "") -> None:
        with contextlib.suppress(OSError):
            told.write_text(f"{text}: {part}" if part else text)

    step("starting")
    found = _report(spec, step)
    partial = Path(f"{spec['report']}.{os.getpid()}")
    partial.write_text(json.dumps(found))
    os.replace(partial, spec["report"])
    return 0


def _report(spec: dict[str, Any], step: Any) -> dict[str, Any]:
    gc.disable()  # what is imported lives on
    from refold.report import commands
    from refold.suite.sizes import sizes

    gc.freeze()
    gc.enable()
    sets = list(spec["sets"])
    try:
        if spec["eager_seconds"] is not None:
            step("choosing sizes")
            sets = sizes(Path(spec["path"]), spec["eager_seconds"], sets)
        given = {"reference": spec["path"], "output": spec["output"], "sets": sets, "json": True}
        given |= {"facts": True, "secret": spec["secret"]}
        outcome = commands.optimized(argparse.Namespace(**spec["options"] | given), step)
    except (Exception, SystemExit) as error:  # a reference that exits is a row
        said = " ".join(str(error).split()) or type(error).__name__
        said = said.replace(spec["path"], Path(spec["path"]).name)
        if not isinstance(error, commands.EXPECTED):
            said = f"{type(error).__name__}: {said}"
        return {"code": 1, "sets": sets, "report": {"error": said[:500]}}
    return {"code": outcome.code, "sets": sets, "report": outcome.report}


if __name__ == "__main__":
    sys.exit(main())
