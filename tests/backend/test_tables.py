"""Gradients of tables, and the sums of a network of many layers that come with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from refold.backend.arguments import rehearse
from refold.backend.indices import may_look_outside

from .by_plan import by_plans
from .steps import check
from .test_accurate import graph


class Tables(nn.Module):
    """Ids that repeat, one that has no gradient, and places that are numbered from the end."""

    def __init__(self, layers: int = 1, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8, padding_idx=3, dtype=dtype)
        self.places = nn.Embedding(6, 8, dtype=dtype)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8, dtype=dtype), nn.Linear(8, 8, dtype=dtype))
            for _ in range(layers)
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = x + layer(x)
        return x.exp()


IDS = torch.tensor([[1, 3, 1, 10, 0, 3], [1, 1, 3, 3, 7, 10]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_embeddings_gradient_is_added_row_by_row(dtype: torch.dtype) -> None:
    """In float32, also of 16 bits. Of these one step is compared: the second begins with parameters
    that rounding has moved apart."""
    calls = [(IDS,), (IDS.flip(1),)]
    with by_plans():
        found = check(Tables(dtype=dtype), calls if dtype == torch.float32 else calls[:1])
    (backward,) = {g.text for g in found if g.kind == "backward"}
    assert backward is not None
    assert backward.count("scatter_add.default(") == 2 and "index_put" not in backward


def test_a_kernel_sums_as_many_columns_as_a_thread_holds() -> None:
    """All gradients of norms follow from the last one's: of BERT's fifty sums in one kernel hardly
    anything was left in registers, and it took as long as all of attention."""
    with by_plans():
        found = check(Tables(layers=9), [(IDS,)])
    texts = [g.text or "" for g in found if g.kind == "backward"]
    lists = [line.count("Sum") for t in texts for line in t.splitlines() if "using Monoids" in line]
    assert max(lists) == 4


class Put(nn.Module):
    """Rows added to those of a table, as PyTorch 2.11 writes an embedding's gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, table: torch.Tensor, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return table.index_put((ids,), self.layer(x).exp(), accumulate=True)


def test_rows_are_put_where_their_numbers_say() -> None:
    """Those that repeat, and those from the end."""
    ids = torch.tensor([[0, -1, 3], [3, -5, 3]])
    with by_plans():
        found = check(
            Put(), [(torch.randn(5, 8), i, torch.randn(2, 3, 8)) for i in (ids, -1 - ids)]
        )
    (forward,) = {g.text for g in found if g.kind == "forward"}
    assert forward is not None
    assert forward.count("scatter_add.default(") == 1 and "index_put" not in forward
    with pytest.raises(RuntimeError, match="out of bounds"):
        torch.compile(Put(), backend="refold", options={"measure": False})(
            torch.randn(5, 8), ids + 5, torch.randn(2, 3, 8)
        )


class GraphAttention(nn.Module):
    """Scores of edges, whose sums are added where each edge ends."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.score = nn.Linear(6, 8), nn.Parameter(torch.randn(2, 8))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        values = self.map(x).view(-1, 2, 4)
        begin, end = ends
        both = torch.cat([values[begin], values[end]], -1)
        scores = torch.nn.functional.leaky_relu((both * self.score).sum(-1)).exp()
        whole = x.new_zeros(x.shape[0], 2).index_add(0, end, scores)
        shares = (scores / whole[end])[..., None]
        return torch.zeros_like(values).index_add(0, end, values[begin] * shares)


def test_a_call_reads_what_kernels_read_by_its_address() -> None:
    """A mask of scores is saved by PyTorch, and computed again by the kernel that reads them."""
    with by_plans():
        check(GraphAttention(), [(torch.randn(9, 6), torch.randint(0, 9, (2, 20)))])


class FromOne(nn.Module):
    """Its numbers begin with 1, as those of many files do."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.first, self.second = nn.Embedding(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(self.table(ids - 1)).tanh())


def test_numbers_that_are_made_up_look_nowhere_outside(caplog: pytest.LogCaptureFixture) -> None:
    """On a GPU that would end all work of the process. What cannot be measured so is not."""
    ids = torch.tensor([[1, 6, 3]])
    with by_plans():
        found = check(FromOne(), [(ids,), (ids.flip(1),)])
    assert any("its error was not measured" in str(g) for g in found)
    assert not [r for r in caplog.records if r.name == "refold" and r.levelname == "WARNING"]


def test_a_graph_is_rehearsed_before_compiled_code_runs() -> None:
    table = torch.randn(6, 8)
    looks = graph(lambda t, i: t.index_select(0, i - 1), table, torch.tensor([1, 6]))
    rehearse(looks, [table, torch.tensor([1, 6])])
    with pytest.raises(IndexError, match="that are made up"):
        rehearse(looks, [table, torch.tensor([0, 6])])


def counted(start: int) -> torch.Tensor:
    device = torch.device("cpu")
    numbers = {"start": start, "step": 1, "dtype": torch.int64, "device": device}
    return torch.ops.prims.iota(6, **numbers, requires_grad=False)


@pytest.mark.parametrize(
    "looks, may",
    [
        (lambda t, i: torch.ops.aten.embedding(t, i[None]), False),
        (lambda t, i: torch.ops.aten.embedding(t, i.clone().view(2, 1)), False),
        (lambda t, i: t.index_select(0, counted(0)), False),
        (lambda t, i: t.index_select(0, counted(1)), True),
        (lambda t, i: t.gather(0, torch.where(i > 0, i, torch.full((2,), 5))[:, None]), False),
        (lambda t, i: t.gather(0, torch.where(i > 0, i, torch.full((2,), 6))[:, None]), True),
        (lambda t, i: t.gather(0, torch.where(i > 0, i, torch.full((2,), -1))[:, None]), True),
        (lambda t, i: t[i + 1], True),
        (lambda t, i: t[t.sum(1).long()], True),
        (lambda t, i: t * i.sum(), False),
    ],
)  # fmt: skip
def test_which_graphs_may_look_outside(looks: Any, may: bool) -> None:
    """Of those that may not, none is run once more."""
    made = make_fx(looks, tracing_mode="fake")(torch.randn(6, 8), torch.tensor([0, 1]))
    assert may_look_outside(made.graph) == may
