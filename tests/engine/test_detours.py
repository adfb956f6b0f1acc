"""What a file says of its steps: no form that neither the original nor the result has and that no
step looks for."""

from __future__ import annotations

import torch
from torch import nn

from refold import derive, pipeline


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(64, 128, 5, padding=1)
        self.norm = nn.BatchNorm2d(128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool2d(self.norm(self.conv(x)).tanh(), 2)


def test_a_form_that_no_step_looks_for_is_no_step() -> None:
    """On Hopper images stay transposed; that the result is equal was said by way of the ordinary
    convolution, whose form the search had tried."""
    _, device = pipeline.target_for("cuda:sm_90", "ieee")
    x = torch.randn(16, 64, 32, 32)
    found = derive.derive(Net().eval(), [x], device, derive.Options(accuracy=False))[-1]
    plan = found.mode.plan
    assert plan is not None
    assert {"conv_transpose"} == {n.op for n in plan.graph.nodes() if n.op.startswith("conv")}
    names = [step.rule for step in found.mode.steps]
    assert "scale-into-transposed-convolution" in names
    assert "transposed-convolution-by-steps-of-one" not in names
