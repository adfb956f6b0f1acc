"""Calls as people make them: what forward takes, gives, asks, sets and shows.

The emitted modules are uncompiled (torch_target.py): nothing here is about kernels.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from refold import pipeline
from refold.capture import Example
from refold.derive import Options, derive
from torch_target import TorchTarget


def reasons(module: nn.Module, *args: Any, **kwargs: Any) -> list[str]:
    """Why the original is kept."""
    found = derive(module, Example(args, kwargs), DEVICE, Options(measure=False))
    return [d.mode.kept for d in found if d.mode.kept]


def fast_of(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """The fast twin of a module, of which each mode is fast."""
    found = derive(module, Example(args, kwargs), DEVICE, Options(measure=False))
    assert all(d.mode.kept is None for d in found), [d.mode.kept for d in found]
    text = pipeline._emit(module, "# Model is bound by the test.", "It", found, TorchTarget())
    assert text is not None
    return pipeline.bind_for_class(text, module)


_, DEVICE = pipeline.target_for("cpu")


def alike(a: Any, b: Any) -> None:
    """The same classes, fields and values, all the way down."""
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b)
        return
    if isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            alike(a[k], b[k])
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            alike(x, y)
    held = getattr(a, "__dict__", None) or {
        k: getattr(a, k) for k in getattr(type(a), "__slots__", ()) if k != "__weakref__"
    }
    if held and type(a).__module__ not in ("builtins", "torch"):
        others = getattr(b, "__dict__", None) or {k: getattr(b, k) for k in held}
        assert held.keys() == others.keys()
        for k in held:
            alike(held[k], others[k])
    elif not isinstance(a, (dict, tuple, list)):
        assert a == b


def check(fast: nn.Module, module: nn.Module, *args: Any, taken: bool = True, **kwargs: Any) -> Any:
    """One call of both, which agree; taken: by the fast path. Gives the fast module's result."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pipeline.obstacle(fast, Example(args, kwargs))
        assert (found is None) == taken, found
        expected = copy.deepcopy(module)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        got = fast(*args, **kwargs)
    alike(got, expected)
    return got


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(6, 6)


def r(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (4, 6)))


# --- arguments ----------------------------------------------------------------------------------
class Pair(NamedTuple):
    x: Any
    y: Any


class Other(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    mask: torch.Tensor | None = None
    scale: float = 2.0


class Slotted:  # as attrs makes them
    __slots__ = ("__weakref__", "names", "x")

    def __init__(self, x: torch.Tensor, names: tuple[str, ...] = ("a",)) -> None:
        self.x, self.names = x, names


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: torch.Tensor


class Takes(Base):
    def forward(self, x: Any, *more: Any, scale: float = 2.0, mask: Any = None, **rest: Any) -> Any:
        tensors = [v for v in pytree.tree_leaves((x, more, mask, rest)) if torch.is_tensor(v)]
        tensors += [x.x] if hasattr(x, "x") else []
        if isinstance(x, Pair):
            scale = 3.0
        return sum(torch.relu(self.fc(v)) * (k + scale) for k, v in enumerate(tensors))


def call(*args: Any, **kwargs: Any) -> Example:
    return Example(args, kwargs)


# an example, calls that are like it, and calls that are not
ARGUMENTS: dict[str, tuple[Example, list[Example], list[Example]]] = {
    "a list": (call([r(), r()]), [call([r(9, 6), r(9, 6)])], [call([r()] * 3), call((r(), r()))]),
    "an empty list": (call([], r()), [call([], r())], [call([r()], r())]),
    "a dict": (
        call({"a": r(), "b": [r()]}),
        [call({"a": r(), "b": [r()]})],
        [
            call({"a": r(), "b": [r()], "c": r()}),
            call({"b": r(), "a": [r()]}),
            call(OrderedDict(a=r(), b=[r()])),
        ],
    ),
    "a named tuple": (call(Pair(r(), r())), [call(Pair(r(), r()))], [call(Other(r(), r()))]),
    "a dataclass": (
        call(Batch(r())),
        [call(Batch(r(7, 6)))],
        [call(Batch(r(), scale=1.0)), call(Batch(r(), r()))],
    ),
    "an object with slots": (
        call(Slotted(r())),
        [call(Slotted(r()))],
        [call(Slotted(r(), ("b",)))],
    ),
    "a frozen dataclass": (call(Frozen(r())), [call(Frozen(r()))], [call(Slotted(r()))]),
    "several": (
        call(r(), r(), r()),
        [call(r(), r(), r())],
        [call(r(), r()), call(r(), r(), [r()])],
    ),
    "keywords": (
        call(x=r(), mask=r(), scale=1.0),
        [call(r(), mask=r(), scale=1.0), call(scale=1.0, mask=r(), x=r())],
        [call(r(), mask=r()), call(r(), scale=1.0), call(r(), mask=r(), scale=1.0, other=r())],
    ),
    "collected keywords": (
        call(r(), a=r(), b=[r()]),
        [call(r(), a=r(), b=[r()])],
        [call(r(), a=r()), call(r(), a=r(), c=[r()]), call(r(), a=r(), b=[r(), r()])],
    ),
    "None": (call(r(), mask=None), [call(r()), call(r(), mask=None)], [call(r(), mask=r())]),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_compared_by_their_whole_structure(name):
    example, like, unlike = ARGUMENTS[name]
    module = Takes().eval()
    fast = fast_of(module, *example.args, **example.kwargs)
    for one in (example, *like):
        check(fast, module, *one.args, **one.kwargs)
    for one in unlike:
        check(fast, module, *one.args, taken=False, **one.kwargs)


def test_a_tensor_given_twice_is_two_arguments():
    module, x = Takes().eval(), r(6, 6)
    for given in ((x, x), ([x, x],), (x, x.t()), (module.fc.weight.detach(), module.fc.weight)):
        fast = fast_of(module, *given)
        others = pytree.tree_map(lambda v: r(6, 6), given)
        check(fast, module, *others)


class ChangesArguments(Base):
    def forward(self, batch: Any) -> Any:
        batch["y"] = torch.relu(self.fc(batch["x"]))
        return batch


def test_an_argument_that_forward_changes_is_seen():
    (reason,) = reasons(ChangesArguments(), {"x": r()})
    assert reason == "forward changes its argument batch"


# --- results ------------------------------------------------------------------------------------
@dataclasses.dataclass
class Result:
    y: torch.Tensor
    n: int
    nothing: None = None

    def __post_init__(self) -> None:
        self.n += 1  # of what the constructor is given


class Plain:
    def __init__(self, y: torch.Tensor) -> None:
        self.y, self.kind = y, torch.float32


class Loose(OrderedDict):  # type: ignore[type-arg]
    pass


class Registered:
    def __init__(self, y: torch.Tensor, name: str) -> None:
        self.y, self.name = y, name
        self.lock = warnings.catch_warnings  # nothing that text can say


pytree.register_pytree_node(
    Registered,
    lambda v: ([v.y], v.name),
    lambda parts, name: Registered(*parts, name),
)
RESULTS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "dataclass": lambda y, x: Result(y, 3),
    "frozen": lambda y, x: Frozen(y),
    "slots": lambda y, x: Slotted(y, ("a", "b")),
    "named tuple": lambda y, x: Pair(y, [y, None]),
    "object": lambda y, x: Plain(y),
    "ordered": lambda y, x: OrderedDict(b=y, a=1.5),
    "its subclass": lambda y, x: Loose(b=y, a=Pair(1, y + 1)),
    "registered": lambda y, x: Registered(y, "named"),
    "sizes": lambda y, x: (y, y.shape, x.shape[0] * 2),
    "nested": lambda y, x: {"a": [Result(y, 1), (y, x)], 3: {"b": Frozen(y * 2)}},
    "of PyTorch": lambda y, x: y.max(-1),
}


class Gives(Base):
    def __init__(self, make: str) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: torch.Tensor) -> Any:
        return RESULTS[self.make](torch.relu(self.fc(x)), x)


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_of_the_very_class(name):
    module = Gives(name).eval()
    fast = fast_of(module, r())
    for x in (r(), r(9, 6)):
        check(fast, module, x)


class Cache:
    def __init__(self, config: Any, y: torch.Tensor) -> None:
        self.config, self.made_of, self.layers = config, Slotted, [Slotted(y), Slotted(y + 1)]


class GivesCache(Base):
    """An object as caches of keys and values are, which begins with nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"layers": [1, 2]}

    def forward(self, x: torch.Tensor) -> Cache:
        y = torch.cat([torch.tensor([], dtype=x.dtype), torch.relu(self.fc(x))], dim=-2)
        return Cache(self.config, y)


def test_a_result_holds_the_very_objects_that_the_module_holds():
    module = GivesCache().eval()
    fast = fast_of(module, r())
    got = check(fast, module, r(9, 6))
    assert got.config is module.config and got.made_of is Slotted


def test_a_class_that_no_text_reaches_is_named():
    local = type("Local", (), {})

    class GivesLocal(Base):
        def forward(self, x: torch.Tensor) -> Any:
            made = self.kind()
            made.y = torch.relu(self.fc(x))
            return made

    module = GivesLocal()
    module.kind = local
    (reason,) = reasons(module, r())
    assert "Local, a class that an emitted file cannot name" in reason


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
            assert pipeline.obstacle(fast, [x, batch]) is None
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
    assert "torch.is_grad_enabled() is True" in str(pipeline.obstacle(fast, [x]))
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


def test_an_address_that_forward_asks_for_is_an_obstacle():
    (reason,) = reasons(Asks(lambda x: x.untyped_storage().nbytes() > 4), r())
    assert "asks where a tensor lies" in reason


def test_what_is_not_asked_is_not_compared():
    module = Takes().eval()
    fast = fast_of(module, r())
    check(fast, module, r(6, 4).t())
    fast.requires_grad_(False)
    assert pipeline.obstacle(fast, [r()]) is None  # in grad mode


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
            assert pipeline.obstacle(fast, [x]) is None
            torch.testing.assert_close(fast(x), twin(x))
        alike(fast[0].hidden, twin[0].hidden)
        alike(fast[0].other, twin[0].other)
        alike(fast[0].maps, twin[0].maps)
        assert fast[0].hidden is not before
    assert list(fast[0]._buffers) == ["other"]
    fast[0].hidden = torch.zeros(4, 6, dtype=torch.float64)
    assert "'0').hidden is torch.float64" in str(pipeline.obstacle(fast, [r()]))


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


# --- sizes --------------------------------------------------------------------------------------
class Halves(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.max_pool2d(torch.relu(self.fc(x)), (2, 1))
        return y * 2 + y.shape[1]


class Doubled(Base):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(torch.cat([x, x]))) + y


def test_a_size_that_is_half_of_another_varies():
    module = Halves().eval()
    fast = fast_of(module, r(3, 10, 6))
    for shape in ((3, 10, 6), (5, 7, 6), (2, 4, 6), (2, 33, 6)):
        check(fast, module, r(*shape))
    check(fast, module, r(3, 3, 6), taken=False)


def test_sizes_that_depend_on_each_other_vary_together():
    module = Doubled().eval()
    fast = fast_of(module, r(3, 6), r(6, 6))
    check(fast, module, r(5, 6), r(10, 6))
    reason = pipeline.obstacle(fast, [r(5, 6), r(9, 6)])
    assert reason is not None and "y has size 9" in reason
