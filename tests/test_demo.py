"""The demo's processes: forked from one that has imported all, they do what started ones do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent / "bench"
RUN = """
import forked
if __name__ == "__main__":
    forked.begin()
    for asked in (["doctor", "--json"], ["optimize", "none.py", "-o", "fast.py"]):
        code, said, errors = forked.refold(asked, {"REFOLD_LOGS": "nonsense"})
        print(code, bool(said), errors.strip().splitlines()[-1:])
"""


def test_a_forked_command_prints_and_ends_as_a_started_one(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    path = os.pathsep.join(filter(None, (str(BENCH), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    asked, wrong = done.stdout.splitlines()
    assert asked.startswith("0 True")
    assert wrong.startswith("2 False") and "expected a readable Python file" in wrong
