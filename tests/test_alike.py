"""Groups that compute alike share one kernel."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import refold
from refold import introspect, pipeline
from refold.derive import Options


class Block(nn.Module):
    def __init__(self, before: int, after: int, slope: float = 0.1) -> None:
        super().__init__()
        self.fc, self.bn = nn.Linear(before, after), nn.BatchNorm1d(after)
        self.slope = slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(nn.functional.leaky_relu(self.bn(self.fc(x)), self.slope), dim=1)


class Blocks(nn.Module):
    """Three blocks of three widths; the last has another constant."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(40, 24), Block(24, 56), Block(56, 24, slope=0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


def structs(text: str) -> list[str]:
    return re.findall(r"(?m)^struct ((?:Eval|Train)\w+\d+) : \w+ \{", text)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90", "cuda:sm_80"])
def test_equal_kernels_are_written_once(target: str) -> None:
    back, device = pipeline.target_for(target, "ieee")
    inputs = [torch.randn(300, 40)]
    result = pipeline.run(Blocks(), inputs, "#", "B", back, device, Options(measure=False))
    assert result.text is not None
    called = re.findall(r"_refold_kernels\.(\w+)\(", result.text)
    used = {
        n for n in called if n.startswith(("eval_", "train_")) and not n.endswith("_workspace_size")
    }
    assert {n.replace("_", "") for n in used} == {n.lower() for n in structs(result.text)}
    evaluated = [n for n in used if n.startswith("eval_")]
    # the same softmax three times; on a GPU one for each width, for which less is compiled
    assert len([n for n in evaluated if "rows" in n]) == (1 if target == "cpu" else 2)
    assert len([n for n in evaluated if "matmul" in n]) == 2, "the third has another constant"
    assert re.search(r"\(of \d groups; operands are those of the first\)", result.text)


def test_what_shares_a_kernel_computes_its_own() -> None:
    torch.manual_seed(0)
    module = Blocks()
    fast = refold.optimize(module, torch.randn(16, 40), measure=False)
    assert fast is not module
    for training in (True, False):
        x = torch.randn(9, 40)
        module.train(training), fast.train(training)
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            state = {k: v.clone() for k, v in module.state_dict().items()}
            expected = module(x)
            module.load_state_dict(state)
            torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-6)
