"""The fork server: its children are as apart from it, and from each other, as fresh processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from judge_paths import CANDIDATES, REFERENCES

from refold.judge import Status, judge
from refold.judge.wire import forkserver
from refold.judge.wire.host import Host, WorkerDied


def test_children_share_nothing_with_the_server() -> None:
    server = forkserver.start(1)
    assert server.usable()
    with Host(threads=1) as a, Host(threads=1) as b:
        assert a.forked and b.forked and a._process.pid != b._process.pid
        for host in (a, b):
            host.request("describe")
            pid = host._process.pid
            assert os.getsid(pid) == pid
            assert host._members() == [pid]
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert host._token.encode() in environment
            kinds = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
            # the channel is the only socket: not the server's, not another worker's
            assert sum(k.startswith("socket:") for k in kinds) == 1, kinds
            files = sorted(k for k in kinds if k.startswith("/memfd:"))
            assert [f.split()[0] for f in files] == ["/memfd:refold-outputs", "/memfd:refold-ring"]
    assert a._process.poll() == -signal.SIGKILL


def test_each_judge_has_an_order_of_texts_and_a_worker_another() -> None:
    """A number of this process's own, unless the user has given one."""
    look = "from refold.judge.wire import forkserver; print(forkserver.HASH_SEED)"
    without = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    given = [without, without, {**without, "PYTHONHASHSEED": "7"}]
    started = [
        subprocess.Popen([sys.executable, "-c", look], env=env, stdout=subprocess.PIPE)
        for env in given
    ]
    first, second, fixed = (p.communicate()[0].strip() for p in started)
    assert first != second and fixed == b"7"
    assert forkserver.OTHER_HASHES["PYTHONHASHSEED"] != forkserver.HASH_SEED
    assert forkserver.environment(1, {})["PYTHONHASHSEED"] == forkserver.HASH_SEED


def test_the_server_never_starts_a_thread() -> None:
    server = forkserver.start(1)
    assert server.usable()
    with Host(threads=1) as host:
        host.request("describe")
    assert len(os.listdir(f"/proc/{server._process.pid}/task")) == 1


def test_a_server_that_dies_takes_its_workers_and_is_replaced() -> None:
    server = forkserver.start(1)
    assert server.usable()
    host = Host(threads=1)
    host.request("describe")
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait()
    with pytest.raises(WorkerDied):
        host.request("describe", 5)
    host.close()
    verdict = judge(
        REFERENCES / "linear.py",
        CANDIDATES / "accept_01_copy.py",
        only="plain output",
        device="cpu",
    )
    assert verdict.accepted
    assert forkserver.start(1) is not server


def test_a_server_with_threads_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, threading, time\n"
        "if 'refold.judge.wire.forked' in sys.orig_argv:\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert not forkserver.start(1).usable()
    with Host(threads=1) as host:
        host.request("describe", 600)
        assert not host.forked


@pytest.mark.parametrize("change", ["nothing", "late", "threads", "environment"])
def test_a_server_that_was_expected_serves_or_ends(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("REFOLD_OF_THIS_TEST", "1")  # no other test's server is for it
    forkserver.expect()
    (expected,) = (s for s in forkserver._servers if s.expected)
    if change == "environment":
        monkeypatch.setenv("REFOLD_OF_THIS_TEST", "2")
    if change == "late":
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/nowhere")
    asked = forkserver.start(2 if change == "threads" else 1)
    assert (asked is expected) == (change != "environment") == expected.alive
    if change != "environment":
        assert asked.usable() == (change != "threads")
        again = forkserver.start(2 if change == "threads" else 1)
        assert (again is asked) == (change != "threads")
        again.close()
    asked.close()


_STUBS = {
    "a part": "",
    "what starts a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    ),
}


@pytest.mark.parametrize("imported", [*_STUBS, "the compiler"])
def test_a_server_imports_ahead_when_it_is_idle(
    imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler itself takes seconds: others stand for it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "exists = os.path.exists\n"
        "os.path.exists = lambda p: p == '/dev/nvidiactl' or exists(p)\n"
    )
    if imported in _STUBS:
        (tmp_path / "torch_dynamo_stub.py").write_text(_STUBS[imported])
        with (tmp_path / "sitecustomize.py").open("a") as file:
            file.write(
                "import importlib\n"
                "load = importlib.import_module\n"
                "importlib.import_module = lambda n, *a: load("
                "'torch_dynamo_stub' if n == 'torch._dynamo' else n, *a)\n"
            )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    server = forkserver.start(1)
    assert server.usable()
    time.sleep(1.0)  # it is idle, and imports
    with Host(threads=1) as host:
        host.request("describe", 600)
        assert host.forked is (imported != "what starts a thread")


def test_no_worker_outlives_the_judging_process() -> None:
    text = (
        "from refold.judge.wire.host import Host; import os\n"
        "h = Host(threads=1); h.request('describe', 600)\n"
        "print(h._process.pid, h._process.server._process.pid, flush=True); os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    for pid in done.stdout.split():
        for _ in range(6000):  # an end takes its time on a machine that is busy
            if not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in _status(pid):
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"{pid} lives on")


def _status(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return "\nState:\tZ"


def test_a_judgement_says_how_its_workers_were_made() -> None:
    verdict = judge(
        REFERENCES / "linear.py", CANDIDATES / "accept_01_copy.py", only="flags", device="cpu"
    )
    assert verdict.status is Status.ACCEPTED
    assert verdict.environment["workers"] == "forked"


def test_a_judge_behind_a_shell_sees_that_interrupts_are_ignored() -> None:
    """What a shell runs behind itself inherits that it ignores them."""
    corpus = CANDIDATES.parent / "corpus"
    code = (
        "import sys; from refold.judge import judge\n"
        "for file in sys.argv[2:]:\n"
        "    v = judge(sys.argv[1], file, quick=True, only='flags', timing=False, device='cpu')\n"
        "    print(v.status)"
    )
    files = [corpus / f"{name}.py" for name in ("interrupts_ignored", "interrupts_ignored_honest")]
    done = subprocess.run(
        [sys.executable, "-c", code, REFERENCES / "linear.py", *files],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        check=True,
    )
    broken, honest = done.stdout.splitlines()
    assert "MUTATES" in broken and "ACCEPTED" in honest
