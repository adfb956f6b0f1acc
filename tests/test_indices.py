"""Arguments that are made up never look outside of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import refold
from refold.accuracy import samples
from refold.accuracy.indices import Within, looks_up

TABLE = torch.randn(5, 3)
PAGES = torch.randn(2, 5, 3)


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values)


CALLS: dict[str, tuple[Callable[[torch.Tensor], Any], int, int]] = {
    # what looks up, and the least and the largest number that may be
    "embedding": (lambda i: F.embedding(i, TABLE), 0, 4),
    "rows": (lambda i: TABLE[i], -5, 4),
    "columns": (lambda i: TABLE[:, i], -3, 2),
    "behind a mask": (lambda i: PAGES[PAGES.sum(-1) > -99, i.expand(10)], -3, 2),
    "put": (lambda i: TABLE.clone().index_put((i,), torch.zeros(3)), -5, 4),
    "gather": (lambda i: TABLE.gather(0, i[:, None]), 0, 4),
    "last gather": (lambda i: TABLE.gather(-1, i[None].expand(5, -1)), 0, 2),
    "select": (lambda i: TABLE.index_select(1, i), 0, 2),
    "add": (lambda i: TABLE.index_add(0, i, torch.ones(len(i), 3)), 0, 4),
    "scatter": (lambda i: TABLE.scatter(0, i[:, None], 1.0), 0, 4),
    "scatter by sums": (lambda i: TABLE.scatter_reduce(0, i[:, None], TABLE[:1], "sum"), 0, 4),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_look_outside_is_an_error_before(call: tuple[Any, int, int]) -> None:
    run, least, most = call
    with Within():
        assert torch.equal(run(numbers(most)), run(numbers(most)))
        run(numbers(least))
        for outside in (least - 1, most + 1):
            with pytest.raises(IndexError, match="that are made up"):
                run(numbers(outside))


def test_what_computes_no_place_is_not_asked() -> None:
    assert not looks_up(torch.ops.aten.mul.Tensor) and not looks_up("expand")
    with Within():
        assert torch.equal(numbers(7) * 2, numbers(14))


class Rounds(nn.Module):
    """What it looks up is rounded from its input."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.map = nn.Embedding(8, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.map(self.table((x * 8).long())).sum(-1)


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_moved_example_is_left_out_where_it_looks_outside(
    on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU nothing but this stops it."""
    stopped: list[IndexError] = []

    class Seen(Within):
        def __torch_dispatch__(self, *given: Any) -> Any:
            try:
                return super().__torch_dispatch__(*given)
            except IndexError as error:
                stopped.append(error)
                raise

    monkeypatch.setattr(samples, "_on_gpu", lambda given: on_gpu)
    monkeypatch.setattr(samples, "Within", Seen)
    model, x = Rounds().eval(), torch.rand(4, 7) * 0.9
    fast = refold.optimize(model, x, measure=False)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
    assert bool(stopped) == on_gpu
