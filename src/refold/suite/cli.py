"""The command `refold suite`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from refold import __version__
from refold.report import arguments
from refold.suite import leases
from refold.suite.here import Here, machine
from refold.suite.page import page
from refold.suite.progress import Terminal
from refold.suite.rows import FAILED, Record, table
from refold.suite.run import Place, run
from refold.suite.summary import summary
from refold.suite.tasks import Ask, SuiteError, Task, find, kernelbench, source_digest

OPTIONS = (
    *("target", "float32", "conv_float32", "convolutions", "memory", "strict", "unsafe", "debug"),
    *("seconds", "no_tune", "no_compile", "baselines", "full"),
)
_SHARE = 0.8  # of the machine's memory, for all tasks together


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of `refold suite`."""
    command.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="a folder of reference files, a file, or a list: FILE.py [NAME=VALUE]... in each line",
    )
    command.add_argument("--kernelbench", metavar="DIR", help="a checkout of KernelBench")
    command.add_argument(
        "--level", type=int, nargs="+", default=[], metavar="N", help="... and which levels of it"
    )
    command.add_argument(
        "--only", type=int, nargs="+", default=[], metavar="N", help="... and which problems"
    )
    command.add_argument(
        "-o",
        "--output",
        default="suite",
        metavar="FOLDER",
        help="rows, files and the page; a run that was broken off goes on there (default: suite)",
    )
    command.add_argument(
        "--jobs",
        type=_count,
        metavar="N",
        help="tasks side by side, each on a GPU or a part of the processors of its own (default:"
        " one, or one for each GPU)",
    )
    command.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="spread the tasks over a Ray cluster (pip install 'refold[ray]'), one on each node or"
        " GPU unless --jobs says how many; every node has this refold",
    )
    command.add_argument(
        "--limit",
        type=arguments.positive,
        default=600.0,
        metavar="SECONDS",
        help="that a task may take (default 600)",
    )
    command.add_argument(
        "--limit-memory",
        type=arguments.positive,
        metavar="GIB",
        help="that the processes of a task may take (default: four fifths of the machine's, shared"
        " by the jobs)",
    )
    command.add_argument(
        "--shrink",
        type=arguments.positive,
        metavar="SECONDS",
        help="halve the constants of each file until eager is predicted to take so long here",
    )
    command.add_argument("--again", action="store_true", help="run what has a row, too")
    command.add_argument("--retry", action="store_true", help="run what failed, too")
    command.add_argument("--json", action="store_true", help="print the summary as JSON")
    arguments.derivation(command)
    arguments.optimize(command)


def suite(args: argparse.Namespace) -> int:
    """Run the suite; 0 where each task has a row that is no failure, else 1."""
    tasks = _tasks(args)
    devices = [] if args.ray else _devices(args)
    folder = Path(args.output)
    ask = _ask(args, len(devices))
    record = Record(folder)
    try:
        place = _place(args, ask, devices, folder)
        with Terminal() as show, _ended_as_interrupted():
            run(tasks, ask, record, place, show, _anew(args, record))
    except KeyboardInterrupt:
        had = len(record.of(tasks))
        print(
            f"refold: interrupted; {had} of {len(tasks)} tasks have rows, and the same command"
            " goes on",
            file=sys.stderr,
        )
        return 130
    finally:
        _write(folder, record, tasks)
        record.close()
    found = summary(record.of(tasks))
    if args.json:
        print(json.dumps(asdict(found), indent=2))
    else:
        print(found.text())
        print(f"rows in {folder}/rows.jsonl and {folder}/rows.csv, a page in {folder}/page.html")
    return int(any(row["status"] in FAILED for row in record.of(tasks)))


def _place(args: argparse.Namespace, ask: Ask, devices: list[leases.Device], folder: Path) -> Place:
    files, logs = folder / "files", folder / "logs"
    if not args.ray:
        return Here(ask, devices, files, logs)
    from refold.suite.cluster import Cluster

    gpus = None if args.target is None else args.target != "cpu"
    return Cluster(ask, args.ray, files, logs, args.jobs, gpus)


def _anew(args: argparse.Namespace, record: Record) -> set[str]:
    """The tasks that run although they have a row."""
    return {
        name
        for name, row in record.rows.items()
        if args.again or (args.retry and row["status"] in FAILED)
    }


def _write(folder: Path, record: Record, tasks: list[Task]) -> None:
    """What is made of the rows."""
    rows = record.of(tasks)
    (folder / "rows.csv").write_text(table(rows))
    (folder / "page.html").write_text(page(rows, len(tasks)), encoding="utf-8")


@contextlib.contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a suite as SIGINT does: what it started is ended first."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tasks(args: argparse.Namespace) -> list[Task]:
    if bool(args.paths) == bool(args.kernelbench):
        raise SuiteError("expected either paths or --kernelbench DIR --level N")
    if args.paths:
        found = find(args.paths)
    elif not args.level:
        raise SuiteError("expected --level N beside --kernelbench")
    else:
        found = kernelbench(Path(args.kernelbench), args.level, args.only)
    sets = tuple(args.sets)
    return [Task(t.name, t.path, (*t.sets, *sets)) for t in found]


def _devices(args: argparse.Namespace) -> list[leases.Device]:
    from refold.devices import DEVICES, is_at_hand
    from refold.pipeline import default_target

    target = args.target or default_target()
    if target != "cpu" and is_at_hand(DEVICES[target]):
        return leases.gpus(args.jobs)
    return leases.processors(args.jobs or 1)


def _ask(args: argparse.Namespace, jobs: int) -> Ask:
    from refold.judge.wire.memory import installed

    gib = args.limit_memory or _SHARE * installed() / max(jobs, 1) / (1 << 30)
    threads = os.environ.get("OMP_NUM_THREADS", "")
    here = {"refold": __version__, "source": source_digest(), "threads": threads}
    return Ask(
        {name: getattr(args, name) for name in OPTIONS},
        args.shrink,
        args.limit,
        int(gib * (1 << 30)),
        here | {"torch": machine()["torch"], "jobs": str(jobs)},
    )


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above zero, came {text!r}")
    return int(text)


__all__ = ["add_arguments", "suite"]
