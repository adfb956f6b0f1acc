"""Calls as people make them: what forward takes, gives, asks, sets and shows.

The emitted modules are uncompiled (torch_target.py): nothing here is about kernels.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from calling import Base, Pair, Takes, check, fast_of, r, reasons
from refold import introspect
from refold.capture import Example


# --- arguments ----------------------------------------------------------------------------------
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


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_nested_tensors_take_the_original():
    """Behind a call that the kernels took, too, which PyTorch's own guards do not survive."""
    module = Mapped().eval()
    fast = fast_of(module, r(3, 6))
    check(fast, module, r(3, 6))
    for layout in (torch.strided, torch.jagged):
        given = torch.nested.nested_tensor([r(2, 6), r(4, 6)], layout=layout)
        with torch.no_grad():
            for ours, theirs in zip(fast(given).unbind(), module(given).unbind(), strict=True):
                torch.testing.assert_close(ours, theirs)
        check(fast, module, r(3, 6))
    for wrong in (None, 3, [r(3, 6)]):
        with pytest.raises(TypeError):
            fast(wrong)


class Mapped(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


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
        # PyTorch 2.11 asks for a size that the window divides, as soon as the example's is one
        taken = shape[1] % 2 == 0 or not torch.__version__.startswith("2.11.")
        check(fast, module, r(*shape), taken=taken)
    check(fast, module, r(3, 3, 6), taken=False)


def test_sizes_that_depend_on_each_other_vary_together():
    module = Doubled().eval()
    fast = fast_of(module, r(3, 6), r(6, 6))
    check(fast, module, r(5, 6), r(10, 6))
    reason = introspect.fallback_reason(fast, [r(5, 6), r(9, 6)])
    assert reason is not None and "y has size 9" in reason
