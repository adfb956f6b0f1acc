"""Files for a GPU before the judge, on the emulator: writes to parameters that no host reads.

The host reads the CPU's memory at each call, and a GPU's never: what sees a write there are
versions, addresses and the kernels' look, one call late. Here an emitted file for a GPU is told
that its device is one of these, and is judged on the CPU, which needs no GPU.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from emulator.module import emulated
from refold import pipeline
from refold.derive import Options
from refold.emit.load import load_text

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"batch_size": 16, "in_features": 128, "out_features": 64}
LIVES = (
    *("one tensor at a time", "ways to write", "uncounted writes", "frozen weights"),
    *("weights in other modes", "writes in between", "statistics move"),
)
PROBLEMS = ("s0_sum_chain", "s1_avgpool_gelu_max", "s2_scale_batchnorm", "s3_batchnorm_softmax")


def small(name: str) -> str:
    """A problem's text at sizes that the emulator carries."""
    text = (ROOT / "problems" / f"{name}.py").read_text()
    for constant, value in SMALL.items():
        text = re.sub(rf"(?m)^{constant} = .*$", f"{constant} = {value}", text)
    return text


def unreadable(text: str, name: str) -> str:
    """A file for the emulator of which the host reads no tensor's memory."""
    namespace = load_text(text)
    torch.manual_seed(0)
    model = namespace.Model(*namespace.get_init_inputs())
    target, device = pipeline.target_for("cuda:sm_80", "ieee")
    options = Options(measure=False, accuracy=False)
    result = pipeline.run(model, namespace.get_inputs(), text, name, target, device, options)
    assert result.text is not None
    made = emulated(result.text)
    for old, new in (
        ("    return device < 0\n", "    return False\n"),
        ('_RefoldFile("cuda", ', '_RefoldFile("cpu", '),  # whose autocast counts
    ):
        assert made.count(old) == 1, old
        made = made.replace(old, new)
    paths = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]
    return f"import sys\n\nsys.path[:0] = {paths!r}\n{made}"


def verdict(folder: Path, text: str, made: str) -> str:
    reference, candidate = folder / "reference.py", folder / "candidate.py"
    reference.write_text(text)
    candidate.write_text(made)
    command = [sys.executable, "-m", "refold", "judge", "--device", "cpu", "--no-timing"]
    for name in LIVES:
        command += ["--only", name]
    command += [str(reference), str(candidate)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", PROBLEMS)
def test_writes_are_followed(name, tmp_path):
    text = small(name)
    said = verdict(tmp_path, text, unreadable(text, name))
    assert "ACCEPTED" in said, said


def test_kernels_that_look_at_nothing_are_caught(tmp_path):
    """What this file's other test rests on."""
    text = small(PROBLEMS[1])
    made = unreadable(text, PROBLEMS[1])
    look = "        _refold_look_meanwhile(rf_caches, _refold_file)\n"
    assert made.count(look) == 1
    said = verdict(tmp_path, text, made.replace(look, ""))
    assert "STALE_WEIGHTS by weights in other modes" in said, said
