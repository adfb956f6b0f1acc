"""Memory that the judge holds, in sizes of the output, beside one float64 call."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from judge_paths import REFERENCES

from refold.judge import judge
from refold.judge.rule import beside
from refold.judge.rule.beside import Beside
from refold.judge.rule.compare import compare, resolve
from refold.judge.wire import memory
from refold.judge.worker import calls

ROWS, WIDTH = 2048, 32768
SIZE = ROWS * WIDTH * 4  # bytes of an output: 256 MiB
REFERENCE = f"""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand({WIDTH}))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.rand({ROWS}, 1)]
"""
# Prints the peak of the memory of the judge and its workers, less what they hold at first.
PEAK = """
import os, sys, threading
from refold.judge import judge


def held():
    total, parents, rest = 0, {}, [os.getpid()]
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                parents[int(entry)] = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            pass
    while rest:
        pid = rest.pop()
        rest += [child for child, parent in parents.items() if parent == pid]
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += next(int(line.split()[1]) << 10 for line in file if line[:4] == "Pss:")
        except OSError:
            pass
    return total


peaks, last, over = {}, ["start"], threading.Event()
def watch():
    while not over.wait(0.01):
        word = last[0]
        peaks[word] = max(peaks.get(word, 0), held())
def progress(word):
    last[0] = word
    peaks[word] = max(peaks.get(word, 0), held())
thread = threading.Thread(target=watch)
thread.start()
tests = ["numerics", "mutation"]
verdict = judge(*sys.argv[1:3], quick=True, only=tests, timing=False, device="cpu",
                progress=progress)
over.set()
thread.join()
assert verdict.accepted, verdict.failures
print(max(peaks[t] for t in tests) - peaks["import"])
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="no smaps_rollup")
def test_the_judge_holds_few_outputs(tmp_path: Path) -> None:
    """One float64 call (an output of twice the size), eager's output, its distance to the truth,
    two outputs of the candidate, and 512 MiB."""
    reference, candidate = tmp_path / "ref.py", tmp_path / "cand.py"
    reference.write_text(REFERENCE)
    text = REFERENCE.replace("Model(", "ModelNew(").replace("x * self", "(x * 3) * (1 / 3 * self")
    candidate.write_text(text.replace("self.weight\n", "self.weight)\n"))
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(reference), str(candidate)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= (2 + 1 + 1 + 2) * SIZE + (512 << 20)


def pair(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    exact = torch.randn(33, 1 << 17, generator=generator, dtype=torch.float64) * 1e3
    exact[0, 0], exact[1, 1], exact[2, 2] = float("nan"), float("inf"), 1e30
    eager = (exact * (1 + 1e-6)).to(dtype)
    eager[3, 3] = float("inf")
    return exact, eager


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_truth_beside_eager_keeps_its_digits(dtype: torch.dtype) -> None:
    exact, eager = pair(dtype)
    found = beside.held([exact, 3, {"a": exact[:1]}], [eager, 3, {"a": eager[:1]}], lambda v: v)
    held = found[0]
    assert isinstance(held, Beside) and found[1] == 3
    assert isinstance(found[2]["a"], torch.Tensor)  # small
    assert held.bytes() == 4 * exact.numel() and held.shape == exact.shape
    error = (held.wide() - exact).abs() / exact.abs()
    known = torch.isfinite(exact)
    known[3, 3] = False  # kept in float32
    assert float(error[known].max()) < 2.0**-30
    assert torch.equal(held.wide().isnan(), exact.isnan())
    assert torch.equal(held.wide().isinf(), exact.isinf())
    assert torch.equal(
        held.every((slice(None, None, 4),)).nan_to_num(), held.wide()[::4].nan_to_num()
    )


def test_comparisons_are_the_same_beside_eager() -> None:
    """Long rows, short ones, and a wrong element in either."""
    exact, eager = pair(torch.float32)
    exact, eager = exact[4:].contiguous(), eager[4:].contiguous()
    for shape in ((29, 1 << 17), (29, 1 << 13, 16)):
        theirs, truth = eager.reshape(shape), exact.reshape(shape)
        held = Beside(truth, theirs)
        for change in (0.0, 1.0):
            got = theirs.clone()
            got.view(-1)[777_777] += change * 1e2
            one, two = (compare("", got, theirs, t)[0] for t in (truth, held))
            assert one.agrees is two.agrees is (change == 0.0)
            if change:
                assert one.worst is not None and two.worst is not None
                assert one.worst.index == two.worst.index
                assert one.wrong is not None and torch.equal(one.wrong, two.wrong)
                perturbed = [truth, truth + change * 1e2]
                mended = resolve(got, held, one.wrong, perturbed)
                assert not torch.equal(mended, got)
                assert compare("", mended, theirs, held)[0].agrees


def test_what_the_machine_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the kernel would give it, and end the process where it is used."""
    monkeypatch.setattr(memory, "_LEAST", 0)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with monkeypatch.context() as patch, memory.bounded():
        patch.setattr(memory, "available", lambda: 0)
        with memory.bounded():
            pass
        assert resource.getrlimit(resource.RLIMIT_DATA) != before
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    monkeypatch.setattr(memory, "available", lambda: 256 << 20)
    with memory.bounded(), pytest.raises(RuntimeError) as found:
        torch.empty(1 << 30, dtype=torch.uint8)
    assert memory.exhausted(type(found.value).__name__, str(found.value))
    assert torch.empty(1 << 30, dtype=torch.uint8).numel() == 1 << 30


def test_a_block_takes_at_most_so_much() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory.at_most(64 << 20), pytest.raises(RuntimeError, match="allocate"):
        torch.empty(1 << 30, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_integers_that_say_how_much_memory_it_takes(tmp_path: Path) -> None:
    """Lengths of 2^30, and of 2^63 - 1: a reference that takes gigabytes of them is not asked, and
    what no machine has is no shortage."""
    reference, copy = REFERENCES / "lengths.py", tmp_path / "copy.py"
    copy.write_text(reference.read_text().replace("class Model(", "class ModelNew("))
    verdict = judge(reference, copy, quick=True, only="far ids", timing=False, device="cpu")
    assert verdict.failures == () and verdict.assumptions == ()


def test_a_worker_gives_freed_memory_back() -> None:
    if "glibc" in str(os.confstr("CS_GNU_LIBC_VERSION")):  # elsewhere there is no such function
        assert calls.trim.__name__ == "malloc_trim"
