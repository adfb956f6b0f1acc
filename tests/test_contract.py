"""Loading reference files: what is overridden, and one clear line for each thing that is wrong."""

from __future__ import annotations

import inspect

import pytest
import torch

from refold import contract

GOOD = """
import torch
from torch import nn

batch_size = 4
features = 2 * 8
half = features // 2
gain = 1.5
flag = True
name = "abc"


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, half)

    def forward(self, x):
        return self.fc(x) * gain


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features]
"""


@pytest.fixture()
def file(tmp_path):
    def write(text):
        path = tmp_path / "ref.py"
        path.write_text(text)
        return path

    return write


def test_loads_and_draws_under_the_seed(file):
    reference = contract.load(file(GOOD))
    a, b = reference.make(3), reference.make(3)
    assert torch.equal(a.fc.weight, b.fc.weight)
    assert torch.equal(reference.inputs(1)[0], reference.inputs(1)[0])
    assert "class Model" in inspect.getsource(reference.model_class)


def test_what_derives_from_a_constant_follows_it(file):
    reference = contract.load(file(GOOD), ["features=20", "gain=2", "flag=False", "name=x"])
    assert reference.make().fc.weight.shape == (10, 20)
    assert reference.constants["gain"] == 2.0 and isinstance(reference.constants["gain"], float)
    assert reference.constants["flag"] is False and reference.constants["name"] == "x"
    assert "features = 20" in reference.source_with_sets
    assert contract.load(file(reference.source_with_sets)).constants["features"] == 20


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("widht=3", "constants here: batch_size=4, features=16, half=8, gain=1.5"),
        ("batch_size=2.5", "batch_size to be int like 4, came '2.5'"),
        ("batch_size=many", "batch_size to be int like 4, came 'many'"),
        ("flag=1", "flag to be bool like True, came '1'"),
        ("batch_size", "expected --set NAME=VALUE, came 'batch_size'"),
    ],
)
def test_a_wrong_override_is_refused(file, pair, words):
    with pytest.raises(contract.ContractError, match=words.replace("(", r"\(")):
        contract.load(file(GOOD), [pair])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            GOOD.replace("class Model", "class Other"),
            "expected a class named Model, came classes: Other",
        ),
        (GOOD.replace("(nn.Module)", ""), "expected Model to be a subclass of torch.nn.Module"),
        (GOOD.replace("get_inputs", "inputs"), r"expected a function get_inputs\(\)"),
        (
            "import no_such_package\n" + GOOD,
            "expected the file to import, came ModuleNotFoundError",
        ),
        ("raise ValueError('no')\n", "expected the file to import, came ValueError: no"),
        ("raise SystemExit(3)\n", "expected the file to import, came SystemExit"),
        ("def broken(:\n", "ref.py:1: expected Python source"),
    ],
)
def test_a_file_that_breaks_the_contract(file, text, words):
    with pytest.raises(contract.ContractError, match=words) as caught:
        contract.load(file(text))
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(contract.ContractError, match="expected a readable Python file"):
        contract.load(tmp_path / "none.py")


@pytest.mark.parametrize(
    ("text", "what", "words"),
    [
        (
            GOOD.replace("super()", "raise OSError('x'); super()"),
            "make",
            "to build a module, came OSError: x",
        ),
        (
            GOOD.replace("return [torch", "return 1 / 0, [torch"),
            "inputs",
            "to return a list of arguments, came ZeroDivisionError",
        ),
        (
            GOOD.replace("return [torch", "return {1: torch").replace("features)]", "features)}"),
            "inputs",
            "to return a list or tuple, came dict",
        ),
        (GOOD.replace("return [features]", "return features"), "make", "to return a list or tuple"),
    ],
)
def test_functions_of_the_file_that_fail(file, text, what, words):
    reference = contract.load(file(text))
    with pytest.raises(contract.ContractError, match=words):
        getattr(reference, what)()


def test_no_init_inputs_means_no_arguments(file):
    text = GOOD.replace("def get_init_inputs", "def other").replace("(self, n)", "(self, n=16)")
    assert contract.load(file(text)).make().fc.weight.shape == (8, 16)
