"""What dropout draws on a GPU: the very numbers that eager draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import refold
from refold import introspect

pytestmark = pytest.mark.gpu


class Does(nn.Module):
    """A map, and a function of what it gives."""

    def __init__(self, then: Callable[[Does, torch.Tensor], Any]) -> None:
        super().__init__()
        self.map, self.out = nn.Linear(64, 96), nn.Linear(96, 32)
        self.one, self.two = nn.Dropout(0.3), nn.Dropout(0.6)
        self.written, self.all = nn.Dropout(0.2, inplace=True), nn.Dropout(1.0)
        self.maps, self.alpha = nn.Dropout2d(0.4), nn.AlphaDropout(0.25)
        self.then = [then]

    def forward(self, x: torch.Tensor) -> Any:
        return self.then[0](self, self.map(x))


CASES: dict[str, Callable[[Does, torch.Tensor], Any]] = {
    "of a module": lambda m, y: torch.softmax(m.one(y), -1),
    "between maps": lambda m, y: m.two(m.out(m.one(torch.relu(y)))).exp(),
    "twice of one value": lambda m, y: m.one(y) - m.one(y),
    "in place": lambda m, y: m.written(y * 2) + m.one(y),
    "of whole channels": lambda m, y: m.maps(y.view(-1, 6, 4, 4)).sigmoid(),
    "that keeps moments": lambda m, y: m.alpha(y) * 2,
    "of everything": lambda m, y: m.one(y) + m.all(y),
    "of an odd number": lambda m, y: m.one(y[:, :7] * 2).relu(),
    "of few bytes": lambda m, y: F.dropout(y.half() * 2, 0.5).float().exp(),
    "by hand": lambda m, y: y * torch.empty_like(y).bernoulli_(0.7) / 0.7,
}


@pytest.mark.parametrize("rows", [1, 5, 4096, 20001])
@pytest.mark.parametrize("name", CASES)
def test_draws_are_eagers(name: str, rows: int) -> None:
    torch.manual_seed(0)
    module = Does(CASES[name]).train().cuda()
    x = torch.randn(rows, 64, device="cuda")
    fast = refold.optimize(module, x, measure=False)
    found, states = [], []
    for one in (refold.original(fast), fast):
        torch.manual_seed(7)
        with torch.no_grad():
            forward = one.forward if one is fast else lambda x, o=one: type(o).forward(o, x)
            found.append([forward(x), torch.rand(3, device="cuda"), forward(x), forward(x)])
        states.append(torch.cuda.get_rng_state())
    with torch.no_grad():
        assert introspect.fallback_reason(fast, (x,)) is None
    assert torch.equal(*states)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=5e-3, atol=5e-3)


def test_a_captured_graph_draws_anew_in_each_run() -> None:
    torch.manual_seed(0)
    module = Does(CASES["of a module"]).train().cuda()
    x = torch.randn(64, 64, device="cuda")
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        for _ in range(3):
            fast(x)
        assert introspect.fallback_reason(fast, (x,)) is None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = fast(x)
        results = []
        for _ in range(2):
            graph.replay()
            results.append(made.clone())
    assert not torch.equal(*results)
