"""Pages of each kind, made from small models and from a model of 2,000 operations."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

from refold import cli
from refold.suite.page import page as suite_page
from suite_tasks import MODE

PROBLEMS = Path(__file__).resolve().parent.parent / "problems"
IMAGES = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16)
        self.linear, self.query, self.key = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x):
        y = self.linear(torch.relu(self.norm(self.conv(x) * 2.0)).mean(dim=(2, 3)))
        a = torch.softmax(self.query(y) @ self.key(y).T, dim=-1)
        return a @ y + torch.cumsum(y, 1), y.max(dim=1).values


def get_inputs():
    return [torch.rand(8, 8, 20, 20)]
"""
DEEP = """
import torch
from torch import nn

blocks = 100


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.scale = nn.Parameter(torch.ones(d))

    def forward(self, x):
        y = torch.tanh(self.a(self.norm(x)))
        y = torch.sigmoid(y) * y + 0.5 * torch.relu(y)
        return x + self.b(y) * self.scale / 1.5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(32) for _ in range(blocks))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def get_inputs():
    return [torch.rand(64, 32)]
"""


def explained(path: Path, folder: Path, *more: str) -> str:
    """The page of `refold explain`."""
    out = folder / "page.html"
    with contextlib.redirect_stdout(io.StringIO()):
        code = cli.main(["explain", str(path), "--html", str(out), "--target", "cpu", *more])
    assert code == 0
    return out.read_text()


def small(size: int) -> list[str]:
    """Sizes for the problems' files."""
    names = ("batch_size", "in_features", "out_features")
    return [word for name in names for word in ("--set", f"{name}={size}")]


def written(folder: Path, text: str) -> Path:
    path = folder / "model_with_quite_a_long_name_that_has_to_break.py"
    path.write_text(text)
    return path


def judged(folder: Path) -> str:
    """The page of `refold judge` on a candidate that is wrong."""
    reference = folder / "ref.py"
    reference.write_text(IMAGES)
    candidate = folder / "cand.py"
    candidate.write_text(IMAGES.replace("class Model", "class ModelNew").replace("* 2.0", "* 2.1"))
    out = folder / "judged.html"
    given = [str(reference), str(candidate), "--quick", "--no-compile", "--html", str(out)]
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.main(["judge", *given, "--device", "cpu"]) == 1
    return out.read_text()


def accepted(folder: Path) -> str:
    """The same of a copy, which is accepted, with times."""
    reference, candidate, out = (folder / n for n in ("ref.py", "cand.py", "judged.html"))
    reference.write_text((PROBLEMS / "s0_sum_chain.py").read_text())
    candidate.write_text(reference.read_text().replace("class Model(", "class ModelNew("))
    given = [str(reference), str(candidate), "--quick", "--html", str(out), "--device", "cpu"]
    with contextlib.redirect_stdout(io.StringIO()):
        cli.main(["judge", *given, *small(64), "--no-compile"])
    return out.read_text()


def rows(count: int) -> list[dict[str, object]]:
    """Rows of a suite with tasks of every kind."""
    machine = {"host": "a-machine", "cores": 2, "torch": "2.13.0"}
    found: list[dict[str, object]] = []
    for i in range(count):
        ratio = 0.8 * 1.05**i
        mode = MODE | {"ratio": ratio, "ratio_quartiles": [ratio * 0.9, ratio * 1.2]}
        mode |= {"speedup_to_best": ratio / 2, "ours_s": 1e-3 / ratio}
        row: dict[str, object] = {
            "task": f"L2/{i}_Conv2d_With_A_Name_Of_Many_Words_{'Scaled_' * (i % 4)}Min",
            "sizes": "batch_size=16 height=16 in_channels=32 out_channels=32" * (i % 3 > 0),
            "status": "ACCEPTED",
            "reason": "",
            "kind": "foldable" if i % 5 == 0 else "ordinary",
            "modes": [{"mode": "both", "promise": "reals", "error": 1e-7, "eager_error": 2e-7}],
            "measured": {"seconds": 31.0 + i, "machine": machine, "modes": {"both": mode}},
        }
        if i % 4 == 3:
            status, reason = [
                ("KEPT", "not faster than torch.compile"),
                ("TIMED OUT", "no end after 600 s"),
                ("DIED", "the process ended with code 1: " + "a long line of an error " * 12),
            ][i % 3]
            row |= {"status": status, "reason": reason, "modes": [], "kind": ""}
        found.append(row)
    return json.loads(json.dumps(found))


PAGES = {
    "explain": lambda folder: explained(PROBLEMS / "s0_sum_chain.py", folder, *small(512)),
    "explain-images": lambda folder: explained(written(folder, IMAGES), folder),
    "explain-deep": lambda folder: explained(written(folder, DEEP), folder),
    "judge-rejected": judged,
    "judge-accepted": accepted,
    "suite": lambda folder: suite_page(rows(100), 120),
    "suite-one": lambda folder: suite_page(rows(1), 1),
    "suite-none": lambda folder: suite_page([], 3),
}
