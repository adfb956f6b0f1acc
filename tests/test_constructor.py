"""A constructor's arguments by name, as some collections of reference files give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import refold
from refold.constructor import by_position
from refold.contract import ContractError, load


class Two:
    def __init__(self, size: Any, config: Any = None, bias: bool = True) -> None:
        pass


class Nothing:
    pass


class ByName:
    def __init__(self, size: int, *, bias: bool = True) -> None:
        pass


CASES = {
    "in order": (Two, [4, None], [4, None]),
    "by name": (Two, [[], {"size": 4}], [4]),
    "both": (Two, [[4], {"config": 1}], [4, 1]),
    "one left out between": (Two, [[], {"bias": False, "size": 4}], [4, None, False]),
    "none": (Nothing, [[], {}], []),
    "a list and a dict": (Two, [[3, 4], {"depth": 2}], [[3, 4], {"depth": 2}]),
    "a list and an empty dict": (Two, [[3, 4], {}], [[3, 4], {}]),
    "two empty ones that are needed": (Two, [[], {}], [[], {}]),
    "a tuple": (Two, ((4,), {"bias": False}), [4, None, False]),
    "three": (Two, [[4], {}, True], [[4], {}, True]),
    "no list": (Two, 4, 4),
}


@pytest.mark.parametrize("name", CASES)
def test_arguments_are_put_in_order(name: str) -> None:
    cls, given, wanted = CASES[name]
    assert by_position(cls, given) == wanted


def test_what_cannot_be_put_in_order_is_told() -> None:
    with pytest.raises(TypeError, match="size"):
        by_position(Two, [[], {"bias": True}])
    with pytest.raises(TypeError, match="bias can be given by name alone"):
        by_position(ByName, [[], {"size": 4, "bias": False}])


REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, scale=1.0, bias=True):
        super().__init__()
        self.fc, self.scale = nn.Linear(width, 8, bias=bias), scale

    def forward(self, x):
        return torch.relu(self.fc(x)) * self.scale

def get_inputs():
    return [torch.randn(4, 16)]

def get_init_inputs():
    return GIVEN
"""


def test_a_reference_is_built_and_judged_so(tmp_path: Path) -> None:
    path = tmp_path / "ref.py"
    path.write_text(REFERENCE.replace("GIVEN", "[[], {'width': 16, 'bias': False}]"))
    model = load(path).make(0)
    assert isinstance(model.fc, nn.Linear) and model.fc.bias is None
    candidate = tmp_path / "cand.py"
    candidate.write_text(path.read_text().replace("class Model(", "class ModelNew("))
    assert refold.judge(path, candidate, only=["numerics"], timing=False).accepted
    candidate.write_text(candidate.read_text().replace("bias=bias", "bias=True"))
    assert not refold.judge(path, candidate, only=["numerics"], timing=False).accepted


def test_arguments_that_do_not_fit_end_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "ref.py"
    path.write_text(REFERENCE.replace("GIVEN", "[[], {'scale': 2.0}]"))
    with pytest.raises(ContractError, match="width"):
        load(path).make(0)
