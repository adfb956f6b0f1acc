"""How `refold suite --shrink` halves the sizes of a reference."""

from __future__ import annotations

from refold.contract import load
from refold.suite.sizes import shapes, sizes

FILE = """
import torch
from torch import nn

rows = 4096
height = width = 512
inner = {inner}
groups = 8
unused = 1 << 20
least = 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(inner, inner)
        self.norm = nn.GroupNorm(groups, inner)

    def forward(self, x):
        assert x.shape[1] >= least
        return self.norm(self.linear(x).flatten(0, 1))


def get_inputs():
    return [torch.rand(rows, height, inner)]
"""


def test_sizes_are_halved_the_largest_first(tmp_path):
    path = tmp_path / "1_file.py"
    path.write_text(FILE.format(inner=1024))
    halved = dict(pair.split("=") for pair in sizes(path, 0.05))
    # what changes no shape stays; rows come before places, and places before features
    assert set(halved) == {"rows", "inner", "height"} and len(set(halved.values())) <= 2
    rows, places, inner = (int(halved[name]) for name in ("rows", "height", "inner"))
    assert rows <= places <= inner <= 2 * rows
    found = shapes(load(path, halved))
    assert found.inputs == [(rows, places, inner)] and found.seconds <= 0.05


def test_sizes_that_leave_no_model_that_runs_stay(tmp_path):
    path = tmp_path / "1_file.py"
    path.write_text(FILE.format(inner=1024).replace("least = 1", "least = 400"))
    halved = dict(pair.split("=") for pair in sizes(path, 0.05))
    assert "height" not in halved and {"rows", "inner"} <= set(halved)


def test_what_is_given_is_not_halved(tmp_path):
    path = tmp_path / "1_file.py"
    path.write_text(FILE.format(inner=1024))
    first, *halved = sizes(path, 0.05, ["rows=2048"])
    assert first == "rows=2048" and not any(pair.startswith("rows=") for pair in halved)


def test_a_constructor_that_asks_for_values_is_run(tmp_path):
    """As models do whose paths are dropped at a rate that grows with depth."""
    path = tmp_path / "1_file.py"
    asks = "self.rates = [x.item() for x in torch.linspace(0, 0.1, 4)]"
    text = FILE.format(inner=1024).replace(
        "        self.norm =", f"        {asks}\n        self.norm ="
    )
    path.write_text(text)
    halved = dict(pair.split("=") for pair in sizes(path, 0.05))
    assert {"rows", "inner"} <= set(halved)
