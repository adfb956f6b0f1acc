"""The runtime as emitted files hold it: one namespace, nothing of refold's own."""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
import types
from importlib import resources

import pytest
import torch

import refold.runtime
from refold.emit.embed import runtime_text
from refold.runtime import settings, structure
from refold.runtime.held import _refold_containers
from refold.runtime.met import _refold_met
from refold.runtime.settings import _refold_setting


def defined(text: str) -> list[str]:
    """The names that a text defines at its top."""
    names = re.findall(r"(?m)^(?:def|class) (\w+)", text)
    names += [
        n for line in re.findall(r"(?m)^(\w[\w, ]*)(?::.*)? = ", text) for n in line.split(", ")
    ]
    return names


def test_every_name_is_defined_once():
    templates = [
        resources.files("refold.emit").joinpath(f"{name}.py.jinja").read_text()
        for name in ("module", "cpu", "cuda")
    ]
    own = defined(runtime_text("cuda"))
    assert len(own) > 40 and len(set(own)) == len(own)
    assert all(name.lower().startswith("_refold") for name in own)
    for text in templates:
        assert not set(own) & set(defined(text))


def test_the_text_is_that_of_the_files():
    """Word for word, but for docstrings of files and imports."""
    text = runtime_text("cuda")
    assert "import refold" not in text and "from refold" not in text
    for part in (*refold.runtime.PARTS, *refold.runtime.MORE_PARTS["cuda"]):
        source = resources.files("refold.runtime").joinpath(f"{part}.py").read_text()
        for body in re.findall(r"(?ms)^((?:def|class) .*?)(?=^\S|\Z)", source):
            assert body.strip() in text
    compile(text, "runtime", "exec")


def test_functions_of_one_name_are_told_apart():
    def made(text):
        scope = {}
        exec(text, scope)
        return _refold_setting(scope["f"])

    first = made("def f(x):\n    return x + 1")
    assert first == made("\n\ndef f(x):\n    return x + 1")  # wherever it stands
    others = (
        *("def f(x):\n    return x + 2", "def f(x):\n    return x * 1"),
        "def f(x, y=2):\n    return x + 1",
        "import functools\ndef g(f):\n    return functools.wraps(f)(lambda x: f(f(x)))\n"
        "@g\ndef f(x):\n    return x + 1",
        "def f(x):\n    return (lambda y: y + 2)(x)",
        "def f(x):\n    return (lambda y: y + 3)(x)",
    )
    assert len({first, *map(made, others)}) == 1 + len(others)
    assert _refold_setting(torch.nn.functional.relu) == "torch.relu()"


class Held:
    """Holds others."""

    def __init__(self, *others: object) -> None:
        self.others = others


def test_what_many_hold_is_looked_at_once(monkeypatch):
    """A graph of objects, each of which is held eight times: there are 8^5 ways through it."""
    seen = []
    fields = settings._refold_fields
    monkeypatch.setattr(settings, "_refold_fields", lambda v: seen.append(v) or fields(v))

    def graph(leaf: float) -> Held:
        held = Held(leaf)
        for _ in range(5):
            held = Held(*[held] * 8)
        return held

    first = _refold_setting(graph(1.0))
    assert len(seen) == 6
    assert first == _refold_setting(graph(1.0)) != _refold_setting(graph(2.0))


def test_what_holds_itself_is_looked_at_once():
    def ring(number: int) -> Held:
        held = Held(number)
        held.others = (*held.others, held, [held])
        return held

    assert _refold_setting(ring(1)) == _refold_setting(ring(1)) != _refold_setting(ring(2))


def test_of_many_values_some_are_looked_at():
    wide = Held(*(Held(Held(i)) for i in range(10_000)))
    assert len(_refold_containers(wide)) < 3 * settings._REFOLD_VALUES
    assert _refold_setting(wide) == _refold_setting(wide)


def own(value: object = None, *, named: object = None) -> object:
    return value, named


@dataclasses.dataclass(slots=True)
class Slots:
    value: object


def around(value: object) -> object:
    return lambda: value


def by_default(value: object) -> object:
    def inner(held: object = value) -> object:
        return held

    return inner


def by_keyword(value: object) -> object:
    def inner(*, held: object = value) -> object:
        return held

    return inner


def by_attribute(value: object) -> object:
    def inner() -> None:
        """It holds what is set on it."""

    inner.held = value  # type: ignore[attr-defined]
    return inner


def module_with(value: object) -> torch.nn.Module:
    module = torch.nn.Identity()
    module.held = value  # type: ignore[assignment]
    return module


HOLDS = {
    "a closure": around,
    "a default": by_default,
    "a keyword's default": by_keyword,
    "a function's attribute": by_attribute,
    "a partial's function": functools.partial,
    "a partial's argument": lambda v: functools.partial(print, v),
    "a partial's keyword": lambda v: functools.partial(print, end=v),
    "a bound method": lambda v: types.MethodType(v, 3),
    "what a method is bound to": lambda v: types.MethodType(print, v),
    "a tuple": lambda v: (1, v),
    "a list": lambda v: [1, v],
    "a set": lambda v: {1, v},
    "a frozen set": lambda v: frozenset({1, v}),
    "a deque": lambda v: collections.deque([1, v]),
    "a dict": lambda v: {"a": v},
    "an ordered dict": lambda v: collections.OrderedDict(a=v),
    "a view of a dict": lambda v: types.MappingProxyType({"a": v}),
    "a module": module_with,
    "an object": lambda v: types.SimpleNamespace(a=v),
    "slots": Slots,
}


@pytest.mark.parametrize("name", HOLDS)
def test_what_is_held_is_met(name: str) -> None:
    """Alone, and held by what another holds."""
    for held in (HOLDS[name](own), HOLDS[name](around(own)), around([HOLDS[name](own)])):
        assert own in set(_refold_met([held], {}))


def test_what_a_module_has_or_has_no_more_is_named() -> None:
    told = structure._refold_told_apart
    assert (
        told({"11", "a"}, {"a", "bias"}) == "has '11', which it had not, and has no 'bias' any more"
    )
    assert told({"a", "b"}, set()) == "has 'a', 'b', which it had not"
    assert told({"-bias"}, {"bias"}) == "has no 'bias' any more"
    assert told({"a", "-b"}, {"a"}) == "has other names that hold nothing"
