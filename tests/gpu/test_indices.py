"""Numbers that are made up while a graph is compiled look nowhere outside of a table: on a GPU that
would end all work of the process."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.gpu


class FromOne(nn.Module):
    """Its ids begin with 1, and a second table is looked up by rounded values."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.steps = nn.Embedding(64, 512), nn.Embedding(16, 512)
        self.first, self.second = nn.Linear(512, 2048), nn.Linear(2048, 64)

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        h = self.table(ids - 1) + self.steps((x * 16).long())
        return self.second(self.first(h).tanh())


def test_the_device_outlives_compilation() -> None:
    torch._dynamo.reset()
    model = FromOne().cuda()
    ids = torch.randint(1, 65, (16, 128), device="cuda")
    x = torch.rand(16, 128, device="cuda") * 0.99
    other = copy.deepcopy(model)
    result = torch.compile(model, backend="refold")(ids, x)
    result.square().mean().backward()
    expected = other(ids, x)
    expected.square().mean().backward()
    torch.cuda.synchronize()
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-6)
