"""A judgement in a process of its own says what one in this process says."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from judge_paths import CANDIDATES, REFERENCES

from refold.contract import ContractError
from refold.judge import Status, aside, judge
from refold.judge.wire import forkserver

LINEAR, COPY = REFERENCES / "linear.py", CANDIDATES / "accept_01_copy.py"
WRONG = CANDIDATES / "reject_19_fp16.py"
ASKED = {"quick": True, "only": ["numerics"], "timing": False, "device": "cpu"}


def test_it_says_what_this_process_would() -> None:
    """Accepted and rejected, one after another by one process; each step is told."""
    steps: list[str] = []
    with aside.begun("cpu", torch.get_num_threads()) as elsewhere:
        verdict = elsewhere(LINEAR, COPY, progress=steps.append, **ASKED)
        wrong = elsewhere(LINEAR, WRONG, **ASKED)
    here = judge(LINEAR, COPY, secret=verdict.secret, **ASKED)
    assert verdict.accepted and "numerics" in steps
    assert [t.name for t in verdict.tests] == [t.name for t in here.tests]
    assert [(e.case, e.max) for e in verdict.errors] == [(e.case, e.max) for e in here.errors]
    assert wrong.status is Status.WRONG_NUMERICS and wrong.failures[0].test == "numerics"
    with aside.begun("cpu", torch.get_num_threads()) as again:
        assert again == elsewhere  # the same process


def test_what_is_refused_is_refused(tmp_path: Path) -> None:
    with (
        aside.begun("cpu", torch.get_num_threads()) as elsewhere,
        pytest.raises(ContractError, match="expected a candidate file, came none"),
    ):
        elsewhere(LINEAR, tmp_path / "none.py", **ASKED)


def test_a_reference_that_ends_the_process(tmp_path: Path) -> None:
    """It ends the judgement in one line, not the process that asks; the next one has another."""
    reference = tmp_path / "reference.py"
    told = LINEAR.read_text().replace("def get_inputs():", "def get_inputs():\n    os._exit(7)")
    reference.write_text(f"import os\n\n{told}")
    with (
        aside.begun("cpu", torch.get_num_threads()) as elsewhere,
        pytest.raises(ContractError, match="process ended with code 7"),
    ):
        elsewhere(reference, COPY, **ASKED)
    with aside.begun("cpu", torch.get_num_threads()) as elsewhere:
        assert elsewhere(LINEAR, COPY, **ASKED).accepted


def test_who_breaks_off_ends_it() -> None:
    """Nobody waits for what it was doing."""

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with (
        aside.begun("cpu", torch.get_num_threads()) as elsewhere,
        pytest.raises(KeyboardInterrupt),
    ):
        elsewhere(LINEAR, COPY, progress=interrupt, **ASKED)
    assert not aside._kept[0][1].alive
    aside.stop()


def test_its_threads_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says of spinning; memory is kept in part."""
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    found = aside._environment(2)
    assert found["GOMP_SPINCOUNT"] == "0" and found["OMP_WAIT_POLICY"] == "PASSIVE"
    assert found["OMP_NUM_THREADS"] == "2" and "MALLOC_TOP_PAD_" not in found
    assert os.environ["GOMP_SPINCOUNT"] == "1000"


def test_on_a_gpu_it_is_this_process() -> None:
    """Another would need a context of its own."""
    with aside.begun("cuda", torch.get_num_threads()) as found:
        assert found is judge
    forkserver.stop()


def test_its_server_is_forked_from_it() -> None:
    """PyTorch is imported once for the judge's process and for what forks its workers."""
    aside.stop()
    with aside.begun("cpu", torch.get_num_threads()) as elsewhere:
        verdict = elsewhere(LINEAR, COPY, **ASKED)
        process = aside._kept[0][1]._process.pid
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        commands = {Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    assert verdict.environment["workers"] == "forked"
    assert commands == {Path(f"/proc/{process}/cmdline").read_bytes()}, commands
    aside.stop()
    assert not any(Path(f"/proc/{pid}").exists() and _runs(pid) for pid in children)


def _runs(pid: str) -> bool:
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except OSError:
            return False
        time.sleep(0.05)
    return True
