"""Modules that hold sparse tensors: an adjacency, for example. Those that forward reads keep the
original."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import refold


class Graph(nn.Module):
    """Reads its adjacency where it is asked to."""

    def __init__(self, csr: bool) -> None:
        super().__init__()
        self.layer, dense = nn.Linear(16, 16), torch.eye(6) + torch.ones(6, 6).triu()
        self.register_buffer("adjacency", dense.to_sparse_csr() if csr else dense.to_sparse())

    def forward(self, x: torch.Tensor, spread: bool = False) -> torch.Tensor:
        y = torch.softmax(self.layer(x), -1)
        return torch.sparse.mm(self.adjacency, y) if spread else y


@pytest.mark.parametrize("csr", (False, True))
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_buffer_stands_in_nobodys_way(csr: bool) -> None:
    module, x = Graph(csr).eval(), torch.randn(6, 16)
    fast = refold.optimize(module, x, measure=False)
    assert fast is not module
    taken = []
    with torch.no_grad():
        for spread in (False, True, True, False):
            torch.testing.assert_close(fast(x, spread=spread), module(x, spread=spread))
            taken.append(refold.status(fast).fast)
    assert taken == [True, False, False, True]


@pytest.mark.parametrize("csr", (False, True))
@pytest.mark.filterwarnings("ignore:Sparse")
def test_where_it_is_read_every_write_is_followed(csr: bool) -> None:
    """The original is kept, or runs graph by graph."""
    module, x = Graph(csr).eval(), torch.randn(6, 16)
    values = module.adjacency.values() if csr else module.adjacency._values()
    fast = refold.optimize(module, x, spread=True, measure=False)
    with torch.no_grad():
        for write in (1.0, 2.0):
            values.mul_(write)
            values.data.mul_(write)
            torch.testing.assert_close(fast(x, spread=True), module(x, spread=True))
