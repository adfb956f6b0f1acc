"""Processes side by side take turns: nobody works while another one times."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

RUN = """
import sys, time
from refold import turns
turns.take_part()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    turns.pause()
    print("work", time.monotonic(), flush=True)
    time.sleep(0.01)
    print("idle", time.monotonic(), flush=True)
    if sys.argv[2] == "times":
        with turns.alone(), turns.alone():
            print("alone", time.monotonic(), flush=True)
            time.sleep(0.05)
            print("idle", time.monotonic(), flush=True)
"""


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "REFOLD_TURNS": str(folder)}
    command = [sys.executable, "-c", RUN, *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def spans(said: str) -> list[tuple[str, float, float]]:
    lines = [line.split() for line in said.splitlines()]
    return [(a[0], float(a[1]), float(b[1])) for a, b in zip(lines[::2], lines[1::2], strict=True)]


def test_who_times_is_alone(tmp_path: Path) -> None:
    running = [started(tmp_path, "1.0", kind) for kind in ("times", "times", "works")]
    found = [spans(p.communicate(timeout=120)[0]) for p in running]
    assert all(p.returncode == 0 for p in running)
    apart = 0
    for i, of_one in enumerate(found):
        for kind, begin, end in of_one:
            if kind != "alone":
                continue
            for other in (s for k, of in enumerate(found) if k != i for s in of):
                assert other[2] <= begin or end <= other[1], (kind, begin, end, other)
                apart += 1
    assert apart > 10 and len(found[2]) > 2


def test_one_that_is_killed_holds_nobody_up(tmp_path: Path) -> None:
    killed = started(tmp_path, "60", "times")
    assert killed.stdout is not None
    assert any(line.startswith("alone") for line in killed.stdout)
    killed.kill()
    begun = time.monotonic()
    said = started(tmp_path, "0.1", "times").communicate(timeout=60)[0]
    killed.wait()
    killed.stdout.close()
    assert "alone" in said and time.monotonic() - begun < 50


def test_without_a_folder_nobody_waits() -> None:
    run = "from refold import turns; turns.take_part(); turns.pause(); print(turns._turns)"
    environment = {k: v for k, v in os.environ.items() if k != "REFOLD_TURNS"}
    done = subprocess.run(
        [sys.executable, "-c", run], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "None"
