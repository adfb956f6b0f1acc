"""What forward shows of its arguments, asks, sets, exports and writes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from calling import Base, Takes, alike, check, fast_of, r, reasons
from refold import introspect


# --- what results share with arguments, parameters and buffers ----------------------------------
class Shows(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: torch.Tensor, batch: Any) -> Any:
        y = torch.relu(self.fc(x))
        self.seen.add_(1)
        w = self.fc.weight
        views = w, w.t(), w[:3], w.view(-1), w.expand(2, 6, 6), x, x[:, :2], x.mT, self.seen[:2]
        return y, views, batch, batch[0][1:]


def memory(tree: Any) -> list[int]:
    return [t.untyped_storage().data_ptr() for t in pytree.tree_leaves(tree)]


def test_views_are_views_still():
    module = Shows().eval()
    fast = fast_of(module, r(), [r()])
    for x in (r(9, 6), r(6, 9).t()):
        batch = [r()]
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x, batch]) is None
            got, expected = fast(x, batch), module(x, batch)
            assert got[2] is batch and got[1][0] is module.fc.weight and got[1][5] is x
        assert memory(got)[1:] == memory(expected)[1:]
        for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves(expected), strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
        got[1][1].data[0, 0] += 1  # the parameter itself
        assert module.fc.weight[0, 0] == got[1][1][0, 0]


# --- what forward asks --------------------------------------------------------------------------
class Asks(Base):
    def __init__(self, ask: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()
        self.ask = ask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.fc(x))
        return y * 2 if self.ask(x) else y + 1


def test_the_grad_mode_that_forward_asks_for():
    module = Asks(lambda x: torch.is_grad_enabled()).eval().requires_grad_(False)
    fast = fast_of(module, r())
    check(fast, module, r())
    x = r()
    assert "torch.is_grad_enabled() is True" in str(introspect.fallback_reason(fast, [x]))
    torch.testing.assert_close(fast(x), module(x))


ORDERS: dict[str, Callable[[torch.Tensor], bool]] = {
    "is_contiguous": lambda x: x.is_contiguous(),
    "stride": lambda x: x.stride(0) == x.shape[1],
    "strides": lambda x: x.stride()[-1] == 1,
    "storage_offset": lambda x: x.storage_offset() == 0,
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_layout_that_forward_asks_for(name):
    module = Asks(ORDERS[name]).eval()
    fast = fast_of(module, r())
    for x in (r(), r(9, 6), r()):
        check(fast, module, x)
    for x in (r(6, 4).t(), r(4, 12)[:, ::2], r(5, 6)[1:]):
        check(fast, module, x, taken=False)
    fast = fast_of(module, r(6, 4).t())
    check(fast, module, r(6, 4).t())
    check(fast, module, r(), taken=False)


def test_an_address_that_forward_asks_for_keeps_the_original():
    (reason,) = reasons(Asks(lambda x: x.untyped_storage().nbytes() > 4), r())
    assert "asks where a tensor lies" in reason


def test_what_is_not_asked_is_not_compared():
    module = Takes().eval()
    fast = fast_of(module, r())
    check(fast, module, r(6, 4).t())
    fast.requires_grad_(False)
    assert introspect.fallback_reason(fast, [r()]) is None  # in grad mode


# --- what forward sets --------------------------------------------------------------------------
class Cell(Base):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = torch.zeros(4, 6)
        self.register_buffer("other", torch.ones(4, 6))
        self.maps = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden = torch.tanh(self.fc(x) + self.hidden)
        self.other = self.other * 2
        self.maps = [self.hidden * 3, x.shape[0]]
        return self.hidden + self.other


def test_attributes_that_forward_replaces():
    module = nn.Sequential(Cell(), nn.Linear(6, 5)).eval()
    twin = copy.deepcopy(module)
    fast = fast_of(module, r())
    assert torch.equal(module[0].hidden, torch.zeros(4, 6)) and module[0].maps is None
    for _ in range(3):
        x, before = r(), fast[0].hidden
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            torch.testing.assert_close(fast(x), twin(x))
        alike(fast[0].hidden, twin[0].hidden)
        alike(fast[0].other, twin[0].other)
        alike(fast[0].maps, twin[0].maps)
        assert fast[0].hidden is not before
    assert list(fast[0]._buffers) == ["other"]
    fast[0].hidden = torch.zeros(4, 6, dtype=torch.float64)
    assert "'0').hidden is torch.float64" in str(introspect.fallback_reason(fast, [r()]))


# --- the user's own module ----------------------------------------------------------------------
class Tied(Base):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.fc.weight = self.first.weight
        self.parts = [self.first]  # the same module by another way
        self.by_name = {"a": [self.first], "call": self.first.forward}
        self.closure = lambda x: self.first(x)
        self.calls: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.parts[0](x) + self.by_name["a"][0](x) + self.by_name["call"](x)
        return torch.relu(self.fc(self.closure(y)))


def test_the_module_is_left_as_it_was():
    module = Tied().eval()
    fast = fast_of(module, r())
    check(fast, module, r())
    other = nn.Parameter(torch.randn(6, 6))
    torch.utils.swap_tensors(module.first.weight, other)  # raises where weak references are left
    check(fast, module, r())
    with torch.no_grad():
        module.fc.weight.mul_(2)
    check(fast, module, r())


def test_a_conversion_that_swaps_works():
    module = Takes().eval()
    fast = fast_of(module, r())
    try:
        torch.__future__.set_swap_module_params_on_conversion(True)
        module.double()
        fast.load_state_dict({k: v * 2 for k, v in module.state_dict().items()})
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert module.fc.weight.dtype == torch.float64


# --- one export where one will do ---------------------------------------------------------------
class Counted:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        plain = torch.export.export

        def export(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return plain(*args, **kwargs)

        monkeypatch.setattr(torch.export, "export", export)


class ReadsMode(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.fc(x))
        return y * 2 if self.training else y


class Bad(Base):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.relu(self.fc(x)), {1, 2}


EXPORTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "no mode": (Takes, (4, 6), 1),
    "dropout of nothing": (lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.0)), (4, 6), 1),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)), (4, 6), 2),
    "a mode that is read": (ReadsMode, (4, 6), 2),
    "a result that cannot be": (Bad, (4, 6), 1),
    "sizes that are fixed": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.BatchNorm2d(3)),
        (4, 2, 9, 9),
        3,  # the second mode knows what the first has found
    ),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_one_export_where_one_will_do(name, monkeypatch):
    make, shape, expected = EXPORTS[name]
    counted = Counted(monkeypatch)
    reasons(make(), r(*shape))
    assert counted.calls == expected


# --- writes to values, which are made functional by hand where that is plain ---------------------
WRITES: dict[str, tuple[Callable[[torch.Tensor], Any], bool]] = {  # and whether it is plain
    "a new value": (lambda y: (y * 2).relu_() + 1, True),
    "a chain": (lambda y: (y * 2).add_(1).mul_(y).tanh_(), True),
    "read before": (lambda y: (lambda z: (z.exp(), z.relu_()))(y * 2), True),
    "read later": (lambda y: (lambda z: (z.relu_(), z + 1))(y * 2), True),
    "seen by a view": (lambda y: (lambda z: (z.view(-1), z.relu_()))(y * 2), False),
    "of a view": (lambda y: (lambda z: (z, z[1:].relu_()))(y * 2), False),
    "of a reshaped value": (lambda y: (lambda z: (z.reshape(-1).add_(1), z))(y * 2), False),
    "of a part": (lambda y: (lambda z: (z.chunk(2, 1)[0].add_(1), z))(y * 2), False),
    "of another dtype": (lambda y: (y * 2).add_(torch.ones(6, dtype=torch.float16)), False),
}


class Writes(Base):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> Any:
        return WRITES[self.name][0](torch.sigmoid(self.fc(x)))


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_values(name, monkeypatch):
    decomposed: list[object] = []
    plain = torch.export.ExportedProgram.run_decompositions
    monkeypatch.setattr(
        torch.export.ExportedProgram,
        "run_decompositions",
        lambda self, *given: decomposed.append(self) or plain(self, *given),
    )
    module = Writes(name).eval()
    check(fast_of(module, r()), module, r(9, 6))
    assert (not decomposed) == WRITES[name][1]
