"""Rows: what a suite keeps of each task. JSON lines are the record; CSV is written from them.

One line is one task. What is a fact is of the kernels that the algebra wrote, which are judged
whether or not they are faster. All that is a time, or follows from one, stands under `measured`:
without it the rows of two runs are equal.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from refold.suite.tasks import SuiteError, Task

Row = dict[str, Any]
ACCEPTED, KEPT, UNRUN = "ACCEPTED", "KEPT", "NOT RUN"
CONSTANT = "INCONCLUSIVE"  # its output does not depend on the input: right, and no gain
LOST = "LOST"  # with its node, more often than a task is tried: no fault of the task
_TOLD = ("mode", "kept", "label", "folds")  # of a mode, what does not stand under `measured`
FAILED = ("TIMED OUT", "OUT OF MEMORY", "DIED", "ERROR", LOST)


def row_of(report: Mapping[str, Any], code: int) -> Row:
    """The row of a report of `refold optimize`, without the task's name.

    code: the exit code.
    """
    if "error" in report:
        return failed("ERROR", report["error"])
    facts = report["facts"]
    modes, measured = [], {}
    for mode in facts["modes"]:
        name = mode["mode"]
        error = facts.get("errors", {}).get(name) or {}
        error = {"error": error.get("candidate"), "eager_error": error.get("eager")}
        one: Row = {"mode": name}
        if "kept" in mode:
            one["kept"] = mode["kept"]
        elif facts["by_timing"]:  # other kernels round otherwise
            measured[name] = {"promise": mode["label"], "folds": mode["folds"]} | error
        else:
            one |= {"promise": mode["label"], "folds": mode["folds"]} | error
        modes.append(one)
    for mode in report.get("modes", ()):
        times = {k: v for k, v in mode.items() if k not in _TOLD}
        if "kept" in mode and "best" in mode:
            times["kept"] = f"not faster than {mode['best']}"
        measured[mode["mode"]] = measured.get(mode["mode"], {}) | times
    kept = [m["kept"] for m in modes if "kept" in m]
    status, reason = UNRUN if code == 4 else facts.get("verdict", ACCEPTED), ""
    if facts["rejected"] or len(kept) == len(modes):
        status, reason = KEPT, facts["rejected"] or "; ".join(dict.fromkeys(kept))
    task = facts.get("task", {})
    return {
        "status": status,
        "reason": reason,
        "kind": task.get("kind", ""),
        "kind_reasons": task.get("reasons", []),
        "assumptions": facts.get("assumptions", []),
        "modes": modes,
        "measured": {
            "kept": code == 3,
            "said": report.get("reason", ""),
            "algebra_s": report.get("algebra_s"),
            "build_s": report.get("build_s"),
            "modes": measured,
        },
    }


def failed(status: str, reason: str) -> Row:
    """The row of a task that has no report, without its name."""
    return {"status": status, "reason": reason, "sizes": "", "modes": [], "measured": {}}


def plain(row: Row) -> Row:
    """A row, times aside."""
    return {k: v for k, v in row.items() if k != "measured"}


def outcome(row: Row) -> str:
    """What became of a task: its status, or KEPT where the original was no slower."""
    return KEPT if row["measured"].get("kept") else str(row["status"])


def kept(row: Row, mode: str) -> str:
    """Why a mode keeps the original: a fact, or a time; empty where it does not."""
    facts: Row = next((m for m in row["modes"] if m["mode"] == mode), {})
    return str(facts.get("kept") or row["measured"].get("modes", {}).get(mode, {}).get("kept", ""))


def why(row: Row) -> str:
    """Why the original is kept, in some mode or in all; empty where it is not."""
    found = {m["mode"]: kept(row, m["mode"]) for m in row["modes"]}
    if all(found.values()):
        told = "; ".join(dict.fromkeys(found.values()))
    else:
        told = "; ".join(f"{mode}: {reason}" for mode, reason in found.items() if reason)
    if not told and outcome(row) == KEPT:
        told = row["measured"].get("said", "")
    return str(row["reason"] or told)


def flat(row: Row) -> Iterator[dict[str, Any]]:
    """A row as lines of a table: one for each mode, or one."""
    base = {
        "task": row["task"],
        "sizes": row["sizes"] or "full size",
        "status": outcome(row),
        "verdict": row["status"],
        "kind": row.get("kind", ""),
    }
    measured = row["measured"]
    end = {
        "algebra_s": measured.get("algebra_s"),
        "build_s": measured.get("build_s"),
        "task_s": measured.get("seconds"),
        "peak_bytes": measured.get("peak"),
        **measured.get("machine", {}),
    }
    for mode in row["modes"] or [{}]:
        times = measured.get("modes", {}).get(mode.get("mode"), {})
        yield {
            **base,
            "mode": mode.get("mode", ""),
            "reason": kept(row, mode.get("mode", "")) or row["reason"],
            **{k: mode.get(k, times.get(k)) for k in ("promise", "error", "eager_error")},
            **beside(times),
            **(end if mode == (row["modes"] or [{}])[0] else {}),
        }


def beside(times: Mapping[str, Any]) -> dict[str, Any]:
    """The times of one mode, if it was timed. to_best: how many times as fast as the best baseline
    what was written is: refold, or eager where the original is kept."""
    if "best" not in times:
        return {}
    low, high = times["ratio_quartiles"]
    found = {
        "eager_ms": times["eager_s"] * 1e3,
        "compile_ms": times["compile_s"] and times["compile_s"] * 1e3,
        "refold_ms": times["ours_s"] * 1e3,
        "speedup": times["ratio"],
        "speedup_low": low,
        "speedup_high": high,
        "to_compile": times["ratio_to_compile"],
        "best": times["best"],
        "to_best": times["speedup_to_best"],
    }
    if "fold_s" in times:
        found |= {"fold_ms": times["fold_s"] * 1e3, "break_even_calls": times["break_even_calls"]}
        found |= {"prepared_bytes": times["prepared_bytes"], "floor_s": times.get("floor_s")}
    return found


def table(rows: Iterable[Row]) -> str:
    """Rows as CSV."""
    lines = [line for row in rows for line in flat(row)]
    names = list(dict.fromkeys(name for line in lines for name in line))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


class Record:
    """The rows in a folder. One process at a time writes there.

    Raises:
        SuiteError: another one does, or the folder cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rows.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise SuiteError(
                f"{folder}: expected a folder to write to ({error.strerror})"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise SuiteError(
                f"{folder}: another suite writes there; wait for it, or name another folder"
            ) from None
        self.rows = self._whole()

    def _whole(self) -> dict[str, Row]:
        """The last row of each task. What was broken off in the middle of a line is removed."""
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(self._file, whole)
        found: dict[str, Row] = {}
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                row = json.loads(line)
                found[row["task"]] = row
            except (ValueError, KeyError, TypeError):
                raise SuiteError(f"{self.path}:{number}: expected a row; remove the line") from None
        return found

    def has(self, task: Task, key: str) -> bool:
        """Whether there is a row of a task that would be the same again."""
        row = self.rows.get(task.name)
        return row is not None and row.get("key") == key and row["status"] != LOST

    def add(self, row: Row) -> None:
        """Keep a row: whole, or not at all."""
        os.write(self._file, (json.dumps(row, allow_nan=True) + "\n").encode())
        os.fsync(self._file)
        self.rows[row["task"]] = row

    def of(self, tasks: Sequence[Task]) -> list[Row]:
        """The rows of these tasks, in their order."""
        return [self.rows[t.name] for t in tasks if t.name in self.rows]

    def close(self) -> None:
        """Let others write."""
        os.close(self._file)
