"""References that nothing can be judged by: each ends in one line that names what is wrong."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from judge_paths import REFERENCES

from refold.cli import main
from refold.contract import ContractError
from refold.judge import Limits, Status, judge
from refold.judge.wire.host import Host, WorkerDied

GOOD = (REFERENCES / "linear.py").read_text()
FORWARD = "return torch.nn.functional.gelu(self.linear(x))"
INPUTS = "return [torch.rand(batch_size, in_features)]"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (FORWARD, "raise ValueError('no\\nway')", "came ValueError: no way; fix the reference"),
        (FORWARD, "raise SystemExit(5)", "came SystemExit: 5; fix the reference"),
        (GOOD, "import no_such_package_anywhere\n" + GOOD, "No module named 'no_such_package_any"),
        (
            FORWARD,
            "g = torch.Generator(); g.seed(); return self.linear(x) * torch.randn(48, generator=g)",
            "expected the same outputs under the same seed, came others in output of a second run",
        ),
        (FORWARD, "return None", "to return tensors and plain values, came NoneType"),
        (FORWARD, "return 'text'", "to return tensors and plain values, came str"),
        (FORWARD, "return {1, 2}", "to return tensors and plain values, came builtins.set"),
        (FORWARD, "return (t for t in [x])", "came builtins.generator"),
        (FORWARD, "return self.linear(x), [object()]", "came builtins.object; there is nothing"),
        (INPUTS, "raise SystemExit(3)", "came SystemExit: 3; fix get_inputs"),
        (INPUTS, "return [object()]", "to give tensors and plain values, came builtins.object"),
        (INPUTS, "return [torch.rand(2, 256).to_sparse()]", "torch.sparse_coo"),
        (INPUTS, "return ['text']", "expected Model to take get_inputs(), came TypeError"),
        (INPUTS, "return [Pair(torch.rand(2, 256), 1)]", "came a named tuple, Pair"),
    ],
)
def test_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, says: str
) -> None:
    assert old in GOOD
    pair = "import collections\n\nPair = collections.namedtuple('Pair', 'x y')\n"
    (tmp_path / "ref.py").write_text(GOOD.replace(old, new) + pair)
    (tmp_path / "cand.py").write_text(GOOD.replace("Model(", "ModelNew("))
    files = [str(tmp_path / "ref.py"), str(tmp_path / "cand.py")]
    assert main(["judge", *files, "--device", "cpu", "--quick", "--no-timing"]) == 2
    printed = capsys.readouterr()
    assert not printed.out and printed.err.count("\n") == 1
    assert says in printed.err


def test_outputs_that_are_always_nan_have_no_power(tmp_path: Path) -> None:
    text = GOOD.replace(FORWARD, FORWARD + " * float('nan')")
    (tmp_path / "ref.py").write_text(text)
    (tmp_path / "cand.py").write_text(
        text.replace("Model(", "ModelNew(").replace(
            FORWARD, "return torch.full_like(self.linear(x), float('nan'))"
        )
    )
    files = (tmp_path / "ref.py", tmp_path / "cand.py")
    verdict = judge(*files, only="numerics", quick=True, device="cpu")
    assert verdict.status is Status.INCONCLUSIVE, verdict.failures
    assert verdict.summary.startswith("INCONCLUSIVE: no input tells right from wrong (")


def test_a_reference_that_hangs_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGALRM)
    (tmp_path / "ref.py").write_text(GOOD.replace(FORWARD, "import time; time.sleep(3600)"))
    (tmp_path / "cand.py").write_text(GOOD.replace("Model(", "ModelNew("))
    files = (tmp_path / "ref.py", tmp_path / "cand.py")
    with pytest.raises(ContractError, match="came no answer within 3 s; fix the reference"):
        judge(*files, quick=True, device="cpu", limits=Limits(import_seconds=3.0))
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


LEAVES = """
import os
import subprocess
import sys
import time
from pathlib import Path

text = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
Path(__file__).with_suffix(".pid").write_bytes(child.stdout.readline())
with open(Path(__file__).with_suffix(".large"), "wb") as file:
    file.truncate(5 << 30)
"""


def test_what_a_candidate_leaves_ends_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It starts a process that leaves its session, and fills a disk: the one is ended, the other
    refused."""
    (tmp_path / "ref.py").write_text(GOOD)
    (tmp_path / "cand.py").write_text(LEAVES + GOOD.replace("Model(", "ModelNew("))
    files = [str(tmp_path / "ref.py"), str(tmp_path / "cand.py")]
    assert main(["judge", *files, "--device", "cpu", "--quick", "--no-timing"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "File too large" in shown
    pid = int((tmp_path / "cand.pid").read_text())
    for _ in range(200):
        if not _lives(pid):
            return
        time.sleep(0.05)
    raise AssertionError(f"{pid} lives on")


def _lives(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_worker_that_writes_too_much_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.judge.wire.memory.written", lambda pid: 9 << 30)
    with Host(threads=1) as host, pytest.raises(WorkerDied, match="disk: wrote"):
        for _ in range(600):
            host.request("describe", 60)
            time.sleep(0.1)
