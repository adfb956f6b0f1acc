"""`refold suite --ray`: the same rows from a cluster, whatever of it is lost on the way."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

import pytest

import suite_tasks
from refold import cli
from refold.suite import supervisor
from refold.suite.rows import plain

TASK = """
import os, time
with open({log!r}, "a") as file:
    file.write("{name}\\n")
time.sleep(1.0)
found["modes"][0]["ratio"] = {ratio}
"""


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes' processes on this machine, one processor each."""
    pytest.importorskip("ray", reason="Ray is not installed: nothing was run on a cluster")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    store = {"num_cpus": 1, "object_store_memory": 80 << 20}
    made = Cluster(initialize_head=True, head_node_args=store)
    made.second = made.add_node(**store)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def on_cluster(folder, output, address):
    """The suite of a folder over a cluster; shows nothing."""
    from refold.suite.cluster import Cluster
    from refold.suite.rows import Record
    from refold.suite.run import run
    from refold.suite.tasks import Ask, find

    ask = Ask(seconds=60.0, memory=1 << 30)
    record = Record(output)
    work = (sys.executable, "-I", "-S", str(suite_tasks.OWN))
    quiet = suite_tasks.Quiet()
    try:
        place = Cluster(ask, address, output / "files", output / "logs", gpus=False, work=work)
        quiet.jobs = place.jobs
        run(find([folder]), ask, record, place, quiet)
    finally:
        record.close()
    return quiet


def supervisors():
    """The processes that run `supervisor.py`, and their parents: workers of the cluster."""
    found = {}
    for pid, parent in supervisor.parents().items():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if supervisor.__file__.encode() in file.read():
                    found[pid] = parent
        except OSError:
            continue
    return found


def tasks_in(folder, log, count):
    folder.mkdir()
    for i in range(count):
        name = f"{i}_task"
        (folder / f"{name}.py").write_text(TASK.format(log=str(log), name=name, ratio=i + 1.0))


class Killer:
    """Kills workers and a node while the suite looks; tells what it has killed."""

    def __init__(self, cluster, log):
        self.cluster, self.log, self.killed = cluster, log, []

    def look(self, quiet, waiting):
        found = supervisors()
        under_way = len(self.log.read_text().splitlines()) - len(quiet.rows)
        if not self.killed and found and under_way == len(found):
            os.kill(next(iter(found.values())), signal.SIGKILL)
            self.killed.append("a worker")
        elif len(self.killed) == 1 and waiting <= 4:
            self.cluster.remove_node(self.cluster.second, allow_graceful=False)
            self.killed.append("a node")


def test_a_worker_and_a_node_are_lost_and_no_row_is(tmp_path, cluster, monkeypatch):
    folder, log = tmp_path / "tasks", tmp_path / "log"
    tasks_in(folder, log, 9)
    (folder / "x_dies.py").write_text("import os\nos._exit(3)")
    suite_tasks.run(folder, tmp_path / "here", jobs=2)
    log.write_text("")
    killer = Killer(cluster, log)
    monkeypatch.setattr(
        suite_tasks.Quiet, "look", lambda self, running, waiting: killer.look(self, waiting)
    )
    quiet = on_cluster(folder, tmp_path / "far", cluster.address)
    assert quiet.jobs == 2 and killer.killed == ["a worker", "a node"]
    rows = [
        [json.loads(line) for line in (tmp_path / n / "rows.jsonl").read_text().splitlines()]
        for n in ("here", "far")
    ]
    assert len(rows[1]) == len({row["task"] for row in rows[1]}) == 10  # nothing twice
    by_name = [sorted(map(plain, every), key=lambda row: row["task"]) for every in rows]
    assert by_name[0] == by_name[1]  # nothing lost
    assert len(log.read_text().splitlines()) > 9  # what was lost on its way was run again
    assert (tmp_path / "far" / "files" / "0_task.py").read_text() == "# fast\n"
    end = time.monotonic() + 20
    while supervisors() and time.monotonic() < end:
        time.sleep(0.1)
    assert supervisors() == {}


def test_an_address_that_is_gone_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    try:
        import ray  # noqa: F401
    except ImportError:
        words = "--ray: expected Ray; pip install 'refold[ray]'"
    else:
        words = f"--ray 127.0.0.1:{port}: nobody answers there"
    assert cli.main(["suite", ".", "--ray", f"127.0.0.1:{port}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
