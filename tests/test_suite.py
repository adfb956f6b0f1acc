"""`refold suite`: a row for each task whatever it does, nothing lost, nothing left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import suite_tasks
from refold import cli
from refold.suite import supervisor
from refold.suite.rows import plain

MARK = f"refold-test-{os.getpid()}"  # an argument by which processes that were left are found
LEAVES = f"""
import subprocess
for _ in range(2):
    subprocess.Popen(["sh", "-c", "sleep 321; : {MARK}"], start_new_session=True)
"""


def left_behind():
    """Command lines of processes that a task of this module started."""
    found = []
    for pid in supervisor.parents():
        try:
            text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if MARK in text and pid != os.getpid():
            found.append(text)
    return found


BAD = {
    "a_good": "",
    "b_hangs": "import time\ntime.sleep(1000)",
    "c_ignores_signals": "import signal, time\n"
    "for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(1000)",
    "d_dies": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    "e_exits": "import os\nprint('said so')\nimport sys; sys.stdout.flush()\nos._exit(7)",
    "f_fills_memory": "x = []\nwhile True: x.append(bytearray(1 << 24))",
    "g_kills_its_supervisor": "import os, signal, time\n"
    "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(1000)",
    "h_leaves_processes": LEAVES,
    "i_forks_away": LEAVES + "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
    f"    os.execlp('sh', 'sh', '-c', 'sleep 321; : {MARK}')",
    "j_prints": "while True: print('x' * 1000)",
    "k_raises": "raise ValueError('no')",
    "l_good": "found['modes'][0]['ratio'] = 5.0",
}


def test_whatever_a_task_does_is_a_row_and_the_rest_goes_on(tmp_path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name, text in BAD.items():
        (folder / f"{name}.py").write_text(text)
    out = tmp_path / "out"
    quiet = suite_tasks.run(folder, out, jobs=4, seconds=5.0, memory=256 << 20)
    rows = {row["task"]: (row["status"], row["reason"]) for row in quiet.rows}
    late = "no end after 5 s"
    assert rows == {
        "a_good": ("ACCEPTED", ""),
        "b_hangs": ("TIMED OUT", late),
        "c_ignores_signals": ("TIMED OUT", late),
        "d_dies": ("DIED", "the process was ended by SIGSEGV"),
        "e_exits": ("DIED", "the process ended with code 7: said so"),
        "f_fills_memory": ("OUT OF MEMORY", "took more than 0.25 GiB"),
        "g_kills_its_supervisor": ("DIED", "its supervisor was killed"),
        "h_leaves_processes": ("ACCEPTED", ""),
        "i_forks_away": ("ACCEPTED", ""),
        "j_prints": ("TIMED OUT", late),
        "k_raises": ("DIED", "the process ended with code 1: ValueError: no"),
        "l_good": ("ACCEPTED", ""),
    }
    assert quiet.most == 4
    assert left_behind() == []
    assert (out / "logs" / "j_prints.log").stat().st_size < 1 << 17
    assert "bytes left out" in (out / "logs" / "j_prints.log").read_text()
    # each has its row: nothing runs again
    assert suite_tasks.run(folder, out, seconds=5.0, memory=256 << 20).had == len(BAD)


@pytest.mark.parametrize("times", [3, 10])
def test_killed_at_random_moments_and_resumed_the_rows_are_the_same(tmp_path, times):
    folder = tmp_path / "tasks"
    folder.mkdir()
    for i in range(12):
        text = f"import time\ntime.sleep(0.1)\nfound['modes'][0]['ratio'] = {i + 1}.0"
        (folder / f"{i}_task.py").write_text(LEAVES + text)
    suite_tasks.run(folder, tmp_path / "whole", jobs=2)
    draw = random.Random(0)
    command = [sys.executable, suite_tasks.OWN, "run", folder, tmp_path / "broken", "2"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    kills, rows = 0, tmp_path / "broken" / "rows.jsonl"
    for _ in range(times):
        running = subprocess.Popen(list(map(str, command)), env=path, start_new_session=True)
        while not (rows.exists() or running.poll() is not None):  # it takes a while to begin
            time.sleep(0.01)
        try:
            running.wait(draw.uniform(0.2, 1.2))
        except subprocess.TimeoutExpired:
            kills += 1
            running.send_signal(draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            running.wait()
        with rows.open("ab") as file:
            file.write(b'{"task": "0_ta' if draw.random() < 0.3 else b"")
    end = time.monotonic() + 60
    while left_behind() and time.monotonic() < end:
        time.sleep(0.05)
    assert left_behind() == []
    while (files := list(temporary.glob("refold_suite_*"))) and time.monotonic() < end:
        time.sleep(0.05)
    assert files == []
    assert kills > times // 2
    suite_tasks.run(folder, tmp_path / "broken", jobs=2)
    whole, broken = (
        [json.loads(line) for line in (tmp_path / n / "rows.jsonl").read_text().splitlines()]
        for n in ("whole", "broken")
    )
    assert len(broken) == len({row["task"] for row in broken}) == 12  # nothing twice
    by_name = lambda rows: sorted(map(plain, rows), key=lambda row: row["task"])
    assert by_name(whole) == by_name(broken)


def test_what_changed_runs_again(tmp_path):
    folder, out = tmp_path / "tasks", tmp_path / "out"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.py").write_text("")
    assert len(suite_tasks.run(folder, out).rows) == 2
    (folder / "b.py").write_text(
        "code = 3\nfound['reason'] = 'no gain'\n"
        "found['facts'] |= {'modes': [{'mode': 'both', 'kept': 'no gain'}]}"
    )
    (row,) = suite_tasks.run(folder, out).rows
    assert (row["task"], row["status"], row["reason"]) == ("b", "KEPT", "no gain")
    assert len(suite_tasks.run(folder, out, memory=1 << 29).rows) == 2
    assert len(suite_tasks.run(folder, out, memory=1 << 29, anew=("a",)).rows) == 1


def test_a_file_whose_task_failed_is_not_taken_for_a_new_one(tmp_path):
    folder, out = tmp_path / "tasks", tmp_path / "out"
    folder.mkdir()
    (folder / "a.py").write_text("")
    suite_tasks.run(folder, out)
    assert (out / "files" / "a.py").exists()
    (folder / "a.py").write_text("raise ValueError")
    suite_tasks.run(folder, out)
    assert not (out / "files" / "a.py").exists()


MODEL = """
import torch
from torch import nn

rows = 16384


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 1024)

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.rand(rows, 256)]
"""


def test_models_are_optimized_judged_and_the_run_goes_on(tmp_path, capsys):
    folder = tmp_path / "tasks"
    folder.mkdir()
    forwards = {"a": "torch.relu(self.linear(x)).sum(dim=1)", "c": "self.linear(x).sum(dim=1)"}
    for name, forward in forwards.items():
        (folder / f"{name}.py").write_text(MODEL.format(forward=forward))
    (folder / "b.py").write_text("raise ValueError('no')")
    given = ["suite", folder, "--shrink", "0.02", "--seconds", "0.5", "--no-compile", "-o"]
    command = [sys.executable, "-m", "refold", *map(str, given)]
    running = subprocess.Popen([*command, str(tmp_path / "out")], stderr=subprocess.DEVNULL)
    rows = tmp_path / "out" / "rows.jsonl"
    while not (rows.exists() and rows.read_text()):
        assert running.poll() is None
        time.sleep(0.1)
    running.kill()
    running.wait()
    assert cli.main([*map(str, given), str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert "of 3 tasks have rows; going on" in said.err
    assert "failed: b" in said.out
    found = {row["task"]: row for row in map(json.loads, rows.read_text().splitlines())}
    assert len(rows.read_text().splitlines()) == 3
    statuses = [found[name]["status"] for name in "abc"]
    assert statuses[1] == "ERROR" and statuses[::2] == ["ACCEPTED"] * 2
    assert found["a"]["sizes"].startswith("rows=") and found["c"]["sizes"]
    assert found["b"]["reason"].startswith("b.py: expected the file to import, came ValueError")
    assert "ModelNew" in (tmp_path / "out" / "files" / "a.py").read_text()
    for row in found.values():
        if row["status"] == "ACCEPTED":  # whether or not it was faster beside other work
            assert row["kind"] == ("foldable" if row["task"] == "c" else "ordinary")
            times = row["measured"]["modes"]["both"]
            assert row["measured"]["kept"] or times["floor_s"] > 0
