"""Reference files: what loads, what `--set` does, and one line for every way to be wrong."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from refold import contract
from refold.contract import ContractError, load

GOOD = """
import torch
from torch import nn

rows, width = 4, 2**4  # a comment that must survive
double = width * 2
scale: float = 1.5
name = "relu"
flag = True
kernel = (3, 3)


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, double)

    def forward(self, x):
        return self.linear(x) * scale


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
"""
MODEL = "import torch\nfrom torch import nn\nclass Model(nn.Module):\n    pass\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "ref.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "data", [GOOD.encode("utf-8-sig"), f"# coding: latin-1\n# é{GOOD}".encode("latin-1")]
)
def test_a_file_is_read_as_python_reads_it(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "ref.py"
    path.write_bytes(data)
    assert load(path).init_inputs() == [16]


def test_same_seed_same_model_and_inputs(tmp_path: Path) -> None:
    reference = load(write(tmp_path, GOOD))
    a, b = reference.make(3), reference.make(3)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert torch.equal(reference.inputs(5)[0], reference.inputs(5)[0])
    assert not torch.equal(reference.inputs(5)[0], reference.inputs(6)[0])


def test_constants_are_listed(tmp_path: Path) -> None:
    assert dict(load(write(tmp_path, GOOD)).constants) == {
        "rows": 4,
        "width": 16,
        "double": 32,
        "scale": 1.5,
        "name": "relu",
        "flag": True,
        "kernel": (3, 3),
    }


def test_constants_beyond_all_sizes_are_not_listed(tmp_path: Path) -> None:
    text = GOOD + "\nfar = 1 << 100\nvast = 2 ** 65\nlarge = 1 << 40\n"
    constants = load(write(tmp_path, text)).constants
    assert constants["large"] == 1 << 40 and not {"far", "vast"} & set(constants)


@pytest.mark.parametrize("sets", [["width=8", "scale=2"], {"width": 8, "scale": 2.0}])
def test_set_reaches_what_is_derived(tmp_path: Path, sets: object) -> None:
    reference = load(write(tmp_path, GOOD), sets)  # type: ignore[arg-type]
    assert reference.constants["double"] == 16
    assert reference.make(0)(*reference.inputs(0)).shape == (4, 16)
    assert reference.sets == {"width": 8, "scale": 2.0}
    assert "rows, width = 4, 8  # a comment that must survive" in reference.source_with_sets
    assert "2**4" in reference.source
    again = load(write(tmp_path, reference.source_with_sets))
    assert again.constants == reference.constants


def test_names_of_one_value_are_one_constant(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "\nheight = breadth = 12  # of a square\n")
    assert load(path).constants["breadth"] == 12
    for sets in (["height=6"], ["breadth=6"], ["height=6", "breadth=6"]):
        reference = load(path, sets)
        assert (reference.constants["height"], reference.constants["breadth"]) == (6, 6)
        assert "height = breadth = 6  # of a square" in reference.source_with_sets
    with pytest.raises(ContractError, match="expected one value for names that are bound to one"):
        load(path, ["height=6", "breadth=7"])


def test_source_is_retrievable_with_sets(tmp_path: Path) -> None:
    text = GOOD.replace("* scale", "* scale + 0 * rows")
    reference = load(write(tmp_path, text), ["width=8"])
    assert "0 * rows" in inspect.getsource(reference.model_class)
    assert "def forward" in inspect.getsource(reference.model_class.forward)


def test_every_type_is_kept(tmp_path: Path) -> None:
    sets = ["flag=false", "name=gelu", "kernel=(5, 1)", "scale=-2", "rows=2 * 3"]
    constants = load(write(tmp_path, GOOD), sets).constants
    values = [constants[n] for n in ("flag", "name", "kernel", "scale", "rows")]
    assert values == [False, "gelu", (5, 1), -2.0, 6]
    assert isinstance(constants["scale"], float)


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (["depth=3"], "constants here: rows=4"),
        (["width=wide"], "to be int like 16"),
        (["width=2.5"], "to be int like 16"),
        (["flag=3"], "to be bool like True"),
        (["width"], "expected --set NAME=VALUE"),
    ],
)
def test_wrong_sets(tmp_path: Path, sets: list[str], says: str) -> None:
    with pytest.raises(ContractError) as caught:
        load(write(tmp_path, GOOD), sets)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f(:\n", "fix the syntax"),
        ("import no_such_module_anywhere\n", "expected the file to import"),
        ("raise SystemExit(3)\n", "expected the file to import"),
        ("class Other: pass\n", "came classes: Other"),
        ("class Model: pass\ndef get_inputs(): return []\n", "subclass of torch.nn.Module"),
        (MODEL, "expected a function get_inputs()"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ContractError) as caught:
        load(write(tmp_path, text))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="check the path"):
        load(tmp_path / "none.py")


@pytest.mark.parametrize(
    ("body", "says"),
    [("raise ValueError('no')", "fix get_inputs"), ("return torch.ones(1)", "list or tuple")],
)
def test_wrong_inputs(tmp_path: Path, body: str, says: str) -> None:
    reference = load(write(tmp_path, f"{MODEL}def get_inputs():\n    {body}\n"))
    assert reference.init_inputs() == []
    with pytest.raises(ContractError, match=says):
        reference.inputs(0)


def test_a_lazy_parameter_is_named(tmp_path: Path) -> None:
    text = GOOD.replace("nn.Linear(n, double)", "nn.LazyLinear(double)")
    with pytest.raises(ContractError, match=r"came a lazy one, linear\.weight; give its layer"):
        load(write(tmp_path, text)).make()


def test_constructor_that_raises(tmp_path: Path) -> None:
    text = MODEL.replace("pass", "def __init__(self, n): raise ValueError('no')")
    with pytest.raises(ContractError, match="to build a module"):
        load(write(tmp_path, text + "def get_inputs(): return []\n")).make(0)


def test_a_seed_is_torch_s_and_leaves_nothing_behind() -> None:
    """`torch.manual_seed` puts off a call, with the stack, for each device that is not there."""
    torch.manual_seed(5)
    expected, before = torch.rand(3), len(torch.cuda._queued_calls)
    contract.seed_everything(5)
    assert torch.equal(torch.rand(3), expected)
    if not torch.cuda._is_compiled():
        assert len(torch.cuda._queued_calls) == before
