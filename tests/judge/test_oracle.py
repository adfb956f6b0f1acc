"""What the oracle keeps between two runs in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from refold.contract import load
from refold.judge.truth import oracle as truth_oracle
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
