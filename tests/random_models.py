"""Random models as text: a class over random lines of PyTorch, in any order, with its inputs.

A line is kept if eager PyTorch runs it on what the lines before it gave and its value stays tame.
So the text of a failing model is its own reproducer, and fewer choices give a smaller model.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from random_lines import (
    ACTIVATIONS,
    BATCH,
    LARGEST,
    NO_DIM,
    OVER_DIM,
    OVER_DIMS,
    OWN,
    POOLS,
    SHAPES,
    STATES,
    TWO,
)

T = TypeVar("T")
Choose = Callable[[Sequence[Any]], Any]


class Model:
    """A model under construction: lines of text, and what they give on the example."""

    rank = 4  # axes that a value may have

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.init: list[str] = []
        self.lines: list[str] = []
        self.inputs: dict[str, str] = {}
        self.values: dict[str, torch.Tensor] = {}
        self.module = nn.Module()
        self.scope = {"torch": torch, "nn": nn, "F": nn.functional, "self": self.module}
        self.changed = False

    # --- inputs -----------------------------------------------------------------------------------
    def begin(self) -> None:
        c, n = self.choose((3, 4, 8)), self.choose((1, 5, 6, 12, 33))
        kinds = (
            ("torch.randn(n, {n})",),
            ("torch.randn(n, {c}, {n})",),
            ("torch.randn(n, {n})", "torch.randn(n, {n})"),
            ("torch.randn(n, {c}, {n})", "torch.randn({n})"),
            ("torch.randn(n, {n})", "torch.rand(n, 1)"),
            ("torch.randint(0, 9, (n, {c}))",),
            ("torch.randn(2, n, {n})", "torch.randn(2, n, {n})"),
            ("torch.randn(7, {n})",),
        )
        for name, text in zip("xyz", self.choose(kinds), strict=False):
            self.take(name, text.format(c=c, n=n))
        if "randint" in self.inputs["x"]:
            self.init.append("self.table = nn.Embedding(9, 6)")
            exec(self.init[-1], self.scope)
            self._keep("self.table(x)")
            del self.values["x"]

    def take(self, name: str, text: str) -> None:
        """An input that `text` draws."""
        self.inputs[name] = text
        torch.manual_seed(0)
        self.values[name] = self.scope[name] = eval(text, {"torch": torch, "n": BATCH})

    # --- lines ------------------------------------------------------------------------------------
    def step(self) -> None:
        names = [k for k, v in self.values.items() if v.is_floating_point()]
        v = self.choose(names[::-1][:3])
        u = self.choose(names)
        x = self.values[v]
        sizes = {
            "v": v,
            "u": u,
            "n": x.shape[-1] if x.dim() else 1,
            "c": x.shape[1] if x.dim() > 1 else 1,
            "k": f"m{len(self.init)}",
        }
        kind = self.choose(("own", "own", "act", "dim", "dim", "dims", "two", "pool", "shape", "x"))
        if kind == "own":
            make, text = self.choose(OWN)
            sizes["m"] = self.choose((1, 4, 7, 16))
            self._own(make.format(**sizes), text.format(**sizes), sizes["k"])
        elif kind == "act":
            self._keep(self.choose(ACTIVATIONS).format(**sizes))
        elif kind == "dim":
            sizes["d"] = self.choose((-1, 1, 0, -2))
            self._keep(self.choose(OVER_DIM).format(**sizes))
        elif kind == "dims":
            sizes["d"], sizes["e"] = self.choose(((-2, -1), (0, -1), (0, 1), (0, 2)))
            self._keep(self.choose(OVER_DIMS).format(**sizes))
        elif kind == "two":
            self._keep(self.choose(TWO).format(**sizes))
        elif kind == "pool":
            sizes["p"], sizes["q"] = self.choose((2, 3, 5)), self.choose((1, 2, 3))
            sizes["r"] = self.choose((0, 1))
            self._keep(self.choose(POOLS).format(**sizes))
        elif kind == "shape":
            self._keep(self.choose(SHAPES).format(**sizes))
        else:
            self._keep(self.choose(NO_DIM).format(**sizes))

    def state(self) -> None:
        names = [k for k, v in self.values.items() if v.is_floating_point() and v.dim()]
        if not names or self.changed:
            return
        v = self.choose(names)
        make, text = self.choose(STATES)
        words = {"k": "state", "v": v, "n": self.values[v].shape[-1]}
        line = f"self.register_buffer('state', {make.format(**words)})"
        exec(line, self.scope)
        try:
            exec(text.format(**words), self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError):
            del self.module._buffers["state"]
            return
        self.init.append(line)
        self.lines.append(text.format(**words))
        self.changed = True

    def _own(self, make: str, text: str, name: str) -> None:
        try:
            exec(f"self.{name} = {make}", self.scope)
        except (RuntimeError, ValueError, AssertionError):
            return
        self.init.append(f"self.{name} = {make}")
        if not self._keep(text):
            self.init.pop()
            delattr(self.module, name)

    def _keep(self, text: str) -> bool:
        try:
            with torch.no_grad():
                value = eval(text, self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError, AssertionError):
            return False
        if not isinstance(value, torch.Tensor) or not 0 < value.numel() <= LARGEST:
            return False
        if not value.isfinite().all() or value.abs().max() > 1e4 or value.dim() > self.rank:
            return False
        name = f"v{len(self.lines)}"
        self.values[name] = self.scope[name] = value
        self.lines.append(f"{name} = {text}")
        return True

    # --- text -------------------------------------------------------------------------------------
    def text(self) -> str:
        made = [k for k in self.values if k.startswith("v")] or list(self.values)
        count = self.choose((1, 1, 2, 3))
        chosen = made[-count:]
        results = [
            ", ".join(chosen),
            "{" + ", ".join(f"'{k}': {k}" for k in chosen) + "}",
            f"[{chosen[-1]}, ({', '.join(chosen)}, None)]",
            f"OrderedDict({', '.join(f'{k}={k}' for k in chosen)})",
            f"torch.aminmax({chosen[0]})",
        ]
        result = self.choose((results[0], results[0], *results))
        body = [*self.lines, f"return {result}"]
        init = ["super().__init__()", *self.init]
        arguments = ", ".join(["self", *self.inputs])
        return "\n".join(
            [
                "from collections import OrderedDict",
                "import torch",
                "import torch.nn as nn",
                "import torch.nn.functional as F",
                "",
                f"n = {BATCH}",
                "",
                "",
                "class Model(nn.Module):",
                "    def __init__(self):",
                textwrap.indent("\n".join(init), " " * 8),
                "",
                f"    def forward({arguments}):",
                textwrap.indent("\n".join(body), " " * 8),
                "",
                "",
                "def get_inputs():",
                f"    return [{', '.join(self.inputs.values())}]",
                "",
            ]
        )


def model_text(choose: Choose, longest: int = 9, kind: type[Model] = Model) -> str:
    """The text of a random model; `choose` takes one of a sequence, the simplest first."""
    torch.manual_seed(0)
    made = kind(choose)
    made.begin()
    for _ in range(choose(range(1, longest + 1))):
        made.step()
    if choose((False, False, False, True)):
        made.state()
    return made.text()


def load(text: str) -> tuple[nn.Module, Callable[[int], list[Any]]]:
    """The module of a model's text, and a function that draws inputs of a batch size."""
    scope: dict[str, Any] = {"__name__": "random_model"}
    exec(compile(text, "<random model>", "exec"), scope)
    torch.manual_seed(1)
    module = scope["Model"]()

    def inputs(count: int = BATCH) -> list[Any]:
        scope["n"] = count
        return scope["get_inputs"]()

    return module, inputs
