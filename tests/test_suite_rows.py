"""`refold suite`: which tasks there are, on which devices they run, what is told of them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

from refold import cli
from refold.suite.leases import Device, Leases, gpus, processors
from refold.suite.progress import remaining
from refold.suite.rows import Record, flat, outcome, plain, row_of, table, why
from refold.suite.summary import summary
from refold.suite.tasks import Ask, SuiteError, Task, find, kernelbench
from suite_tasks import report

# tasks


def test_tasks_of_folders_files_and_lists(tmp_path):
    for name in ("10_b.py", "9_a.py", "_not.py", "text.md"):
        (tmp_path / name).touch()
    assert [t.name for t in find([tmp_path])] == ["9_a", "10_b"]
    given = tmp_path / "list.txt"
    given.write_text("# none\n9_a.py rows=4 name='a b'  # one\n\n10_b.py\n9_a.py\n")
    found = find([given])
    assert [(t.name, t.sets) for t in found] == [
        ("9_a rows=4 name=a b", ("rows=4", "name=a b")),
        ("10_b", ()),
        ("9_a", ()),
    ]
    assert len({t.file for t in found}) == 3 and all("/" not in t.file for t in found)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["9_a.py", "9_a.py"], "two tasks are called 9_a"),
        (["9_a"], "list.txt:1: expected FILE.py [NAME=VALUE]..., came '9_a'"),
        (["9_a.py rows"], "list.txt:1: expected FILE.py"),
        (["9_a.py 'rows"], "list.txt:1: No closing quotation"),
        ([], "expected a list of Python files"),
    ],
)
def test_a_list_that_is_none_is_one_line(tmp_path, lines, words):
    (tmp_path / "list.txt").write_text("\n".join(lines))
    with pytest.raises(SuiteError, match=words.replace("[", r"\[")):
        find([tmp_path / "list.txt"])


def test_kernelbench_is_taken_in_order(tmp_path):
    folder = tmp_path / "KernelBench" / "level2"
    folder.mkdir(parents=True)
    for name in ("10_b.py", "9_a.py", "no_number.py"):
        (folder / name).touch()
    for root in (tmp_path, tmp_path / "KernelBench"):
        assert [t.name for t in kernelbench(root, [2])] == ["L2/9_a", "L2/10_b"]
    assert [t.name for t in kernelbench(tmp_path, [2], [10])] == ["L2/10_b"]
    with pytest.raises(SuiteError, match="with a folder level3"):
        kernelbench(tmp_path, [3])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected either paths or --kernelbench"),
        (["nowhere"], "nowhere: expected a folder, a Python file or a list"),
        (["--kernelbench", "."], "expected --level N"),
        ([".", "--jobs", "1000"], "--jobs: expected"),
        ([".", "--jobs", "0"], "expected a whole number above zero"),
        ([".", "-o", "/proc/suite"], "/proc/suite: expected a folder to write to"),
        ([".", "--limit", "-1"], "expected a positive number"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    try:
        code = cli.main(["suite", *arguments])
    except SystemExit as error:
        code = error.code
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2 and words in line


def test_one_suite_writes_to_a_folder(tmp_path):
    record = Record(tmp_path)
    with pytest.raises(SuiteError, match="another suite writes there"):
        Record(tmp_path)
    record.close()
    Record(tmp_path).close()


# devices


def test_processors_and_gpus_are_shared_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert processors(1)[0].environment == {}
    parts = processors(3)
    assert [p.processors for p in parts] == [(0, 1), (2, 3), (4, 5)]
    assert parts[0].environment == {"OMP_NUM_THREADS": "2"}
    listed = "\n".join(f"{i}, GPU-{c}" for i, c in enumerate("abc"))
    monkeypatch.setattr(
        subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, listed, "")
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [d.gpu for d in gpus(None)] == ["GPU-a", "GPU-b", "GPU-c"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-a")
    assert [d.environment for d in gpus(2)] == [
        {"CUDA_VISIBLE_DEVICES": "GPU-c"},
        {"CUDA_VISIBLE_DEVICES": "GPU-a"},
    ]
    with pytest.raises(SuiteError, match="expected 2 at most, the GPUs, came 3"):
        gpus(3)


def test_a_device_has_one_task_among_all_suites():
    names = [f"test-{os.getpid()}-{i}" for i in range(3)]
    ours = Leases([Device((names[0], names[1])), Device((names[2],))])
    theirs = Leases([Device((names[1],)), Device((names[2],))])
    first = ours.take()
    assert first == Device((names[0], names[1]))
    assert theirs.take() == Device((names[2],))
    assert ours.take() is None and theirs.take() is None
    ours.give(first)
    assert theirs.take() == Device((names[1],))
    assert ours.take() is None  # of two processors it needs both
    theirs.close()
    assert ours.take() is not None
    ours.close()


# rows


def accepted(name="a", **more):
    row = row_of(report(**more), 0)
    return {"task": name, "key": "k", "sizes": "", **row}


def test_a_kept_row_says_no_times_outside_of_what_is_measured():
    said = "the kernels were not faster than torch.compile (3 ms against 2 ms, ratio 0.67)"
    row = row_of(report(kept=said) | {"reason": said}, 3)
    assert why(row) == "not faster than torch.compile" and outcome(row) == "KEPT"
    assert "ms" not in json.dumps(plain(row)) and row["measured"]["said"] == said


def test_what_is_a_fact_does_not_follow_from_what_was_faster():
    """Kernels are judged whether or not they are faster; the verdict and their errors are facts."""
    slow = row_of(report(kept="not faster (3 ms against 2 ms)") | {"reason": "slow"}, 3)
    assert plain(slow) == plain(row_of(report(), 0)) and slow["status"] == "ACCEPTED"
    assert [line["verdict"] for line in flat({"task": "a", "sizes": "", **slow})] == ["ACCEPTED"]


def test_what_times_chose_is_no_fact():
    """Kernels that were chosen by timing round otherwise than others."""
    found = report()
    found["facts"]["by_timing"] = True
    row = row_of(found, 0)
    assert plain(row)["modes"] == [{"mode": "both"}]
    assert row["measured"]["modes"]["both"]["error"] == 1e-7
    assert next(flat({"task": "a", "sizes": "", **row}))["error"] == 1e-7


def test_kernels_that_were_rejected_are_told():
    found = report() | {"reason": "the judge rejected the kernels (WRONG_NUMERICS)"}
    found["facts"] |= {"rejected": found["reason"], "verdict": "WRONG_NUMERICS"}
    row = row_of(found, 3)
    assert (row["status"], row["reason"]) == ("KEPT", found["reason"])


@pytest.mark.parametrize("seconds", (0.0, 1e-3))
def test_that_it_folds_does_not_follow_from_a_time(seconds):
    (mode,) = plain(accepted(folds=True, fold_s=seconds))["modes"]
    assert mode["folds"] is True


def test_rows_are_a_table(tmp_path):
    record = Record(tmp_path)
    record.add(accepted())
    failed = {"status": "DIED", "reason": 'a, "b"', "modes": [], "measured": {"seconds": 1.0}}
    record.add({"task": "b", "key": "k", "sizes": "n=1", **failed})

    lines = list(
        csv.DictReader(table(record.of([Task("b", Path()), Task("a", Path())])).splitlines())
    )
    record.close()
    assert [(line["task"], line["sizes"], line["status"]) for line in lines] == [
        ("b", "n=1", "DIED"),
        ("a", "full size", "ACCEPTED"),
    ]
    assert lines[0]["reason"] == 'a, "b"' and float(lines[1]["to_best"]) == 2.0
    assert len(list(flat(accepted()))) == 1


def test_a_summary_counts_folded_tasks_apart_and_gives_no_mean():
    rows = [
        accepted(str(i), ratio=r, speedup_to_best=r / 2) for i, r in enumerate((1.0, 4.0, 16.0))
    ]
    kept = {"kept": "x", "best_s": 1.0, "eager_s": 2.0, "speedup_to_best": 0.5, "ratio": 0.4}
    rows.append({"task": "k", "sizes": "", **row_of(report(**kept) | {"reason": "x"}, 3)})
    rows.append(
        {"task": "f", "sizes": "", "status": "DIED", "reason": "", "modes": [], "measured": {}}
    )
    folded = accepted("fold", ratio=1000.0, speedup_to_best=900.0)
    rows.append(folded | {"kind": "foldable"})
    found = summary(rows)
    assert found.tasks == 6 and found.failed == ("f",) and found.faster == 3
    ordinary, apart = found.parts
    assert ordinary.tasks == 5 and apart.tasks == 1
    assert ordinary.over_eager.geometric_mean == pytest.approx(64 ** (1 / 5))
    assert (ordinary.over_eager.median, ordinary.over_eager.slower) == (1.0, 0)
    assert ordinary.over_best.slower == 2  # one accepted, one kept
    assert apart.over_best.geometric_mean == pytest.approx(900.0)
    assert ordinary.ceiling.median == pytest.approx(0.5)
    assert "ordinary tasks (5)" in found.text() and "folded tasks (1)" in found.text()


def test_the_end_is_foretold():
    assert remaining([1.0], 3, [], 1) is None
    assert remaining([1.0, 20.0], 3, [10.0, 10.0], 2) == pytest.approx((9 + 0 + 30) / 2)


def test_a_key_follows_all_that_a_row_depends_on(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("1")
    task, ask = Task("a", path), Ask()
    keys = {ask.key(task), Ask({"full": True}).key(task), Ask(seconds=1.0).key(task)}
    keys |= {Ask(here={"torch": "2"}).key(task), ask.key(Task("a", path, ("n=1",)))}
    path.write_text("2")
    keys |= {ask.key(task), ask.key(Task("a", tmp_path / "gone.py"))}
    assert len(keys) == 7
