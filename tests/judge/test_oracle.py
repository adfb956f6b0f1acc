"""What the oracle keeps between two runs in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from refold.contract import load
from refold.judge import judge
from refold.judge.truth import oracle as truth_oracle
from refold.judge.truth.copies import duplicate
from refold.judge.truth.oracle import Oracle


def test_a_large_parameter_is_widened_once_for_each_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "import torch\nfrom torch import nn\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.w = nn.Linear(1024, 1024)\n"
        "    def forward(self, x):\n        return self.w(x)\n"
        "def get_inputs():\n    return [torch.randn(4, 1024)]\n"
    )
    (tmp_path / "ref.py").write_text(text)
    one = Oracle(load(tmp_path / "ref.py"), 0, torch.device("cpu"))
    inputs, weight = [torch.randn(4, 1024)], one.model.w.weight
    widened = []
    wide = truth_oracle.widen
    monkeypatch.setattr(truth_oracle, "widen", lambda t: widened.append(t.numel()) or wide(t))

    def exact() -> torch.Tensor:
        found = one.exact(inputs, False, 0).outputs
        assert weight.dtype == torch.float32 and weight.data_ptr() == lies
        wanted = inputs[0].double() @ weight.double().t() + one.model.w.bias.double()
        torch.testing.assert_close(found, wanted)
        return found

    lies = weight.data_ptr()
    first = exact()
    assert torch.equal(first, exact())
    assert widened.count(1 << 20) == 1
    one.load({k: v * 1.5 for k, v in one.state().items()})
    assert not torch.equal(first, exact())
    assert widened.count(1 << 20) == 2
    other = torch.nn.Parameter(weight.detach() * 3)
    lies, weight = other.data_ptr(), other
    one.model.w.weight = other
    exact()
    assert widened.count(1 << 20) == 3


_EXCHANGED = """
import torch
from torch import nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(8, 8)
        self.register_buffer("last", torch.zeros(8))
    def forward(self, x):
        y = self.w(x - self.last)
        self.last = x[-1].detach().clone()
        return y

def get_inputs():
    return [torch.randn(4, 8)]
"""


def test_a_buffer_that_a_call_exchanges_is_put_back(tmp_path: Path) -> None:
    """One of float64, or of another shape, is none that the next call in float32 may meet."""
    (tmp_path / "ref.py").write_text(_EXCHANGED.format(name="Model"))
    one = Oracle(load(tmp_path / "ref.py"), 0, torch.device("cpu"))
    held = one.model.last
    for inputs in ([torch.randn(4, 8)], [torch.randn(4, 1)]):
        one.exact(inputs, True, 0)
        assert one.model.last is held and held.dtype == torch.float32
        assert torch.equal(held, torch.zeros(8))


@pytest.mark.parametrize("test", ["aliasing", "flags", "layout of each axis"])
def test_exchanged_buffers_end_no_judgement(tmp_path: Path, test: str) -> None:
    """The judge failed there, and was out of room in the candidate's module."""
    for name in ("Model", "ModelNew"):
        (tmp_path / f"{name}.py").write_text(_EXCHANGED.format(name=name))
    given = tmp_path / "Model.py", tmp_path / "ModelNew.py"
    tests = ["numerics", "shapes", "layout", test]
    verdict = judge(*given, quick=True, only=tests, timing=False, device="cpu")
    assert verdict.accepted, verdict.failures


def test_a_copy_begins_where_the_tensor_does_in_its_memory(tmp_path: Path) -> None:
    """PyTorch refuses to take pairs for complex numbers that begin at an odd place: a copy that
    begins at an even one was no refusal, and every candidate that refuses was turned away."""
    pairs = torch.randn(41)[1:].view(4, 5, 2)
    with pytest.raises(RuntimeError, match="storage_offset"):
        torch.view_as_complex(duplicate(pairs, torch.device("cpu")))
    even = duplicate(torch.randn(42)[2:].view(4, 5, 2), torch.device("cpu"))
    assert torch.view_as_complex(even).shape == (4, 5)
    text = (
        "import torch\nfrom torch import nn\nclass Model(nn.Module):\n"
        "    def forward(self, x):\n        return torch.view_as_complex(x).abs()\n"
        "def get_inputs():\n    return [torch.randn(5, 6, 2)]\n"
    )
    (tmp_path / "ref.py").write_text(text)
    (tmp_path / "cand.py").write_text(text.replace("class Model(", "class ModelNew("))
    files = tmp_path / "ref.py", tmp_path / "cand.py"
    verdict = judge(*files, only="layout", quick=True, timing=False, device="cpu")
    assert verdict.accepted, verdict.failures


@pytest.mark.parametrize(
    ("sum_of", "moves"),
    [("x.double().cumsum(-1)", False), ("x.cumsum(-1).double()", True), ("x.cumsum(-1)", True)],
)
def test_moved_runs_leave_what_eager_computes_in_float64(
    tmp_path: Path, sum_of: str, moves: bool
) -> None:
    text = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return torch.remainder({sum_of}, 1.0).float()\n"
        "def get_inputs():\n    return [torch.rand(2, 400) * 100]\n"
    )
    (tmp_path / "ref.py").write_text(text)
    one, inputs = Oracle(load(tmp_path / "ref.py"), 0, torch.device("cpu")), [torch.rand(2, 400)]
    exact, moved = one.exact(inputs, False, 0).outputs, one.perturbed(inputs, False, 0, 1).outputs
    assert moved.dtype == torch.float64
    assert torch.equal(exact, moved) is not moves
