"""Sizes that torch.export found, as polynomials of the inputs' and of what is derived from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from refold.capture.values import Ratio, SizeError
from refold.ir import Dim, Sym, hint

# how a function of sizes that is no polynomial is written in Python
_DERIVED = {
    "FloorDiv": "(({0}) // ({1}))",
    "CleanDiv": "(({0}) // ({1}))",
    "Mod": "(({0}) % ({1}))",
    "PythonMod": "(({0}) % ({1}))",
    "Max": "max({0}, {1})",
    "Min": "min({0}, {1})",
}


@dataclass(frozen=True)
class Derived:
    """A size that is computed from others and is no polynomial of them.

    form: Python text with a place for each operand. more: is added to it.
    """

    form: str
    operands: tuple[Dim, ...]
    more: int = 0

    def text(self, sizes: Mapping[str, str]) -> str:
        """Python text; sizes: that of each named size."""
        made = self.form.format(
            *(d.text(sizes) if isinstance(d, Sym) else str(d) for d in self.operands)
        )
        return f"({made} + {self.more})" if self.more else made

    @property
    def hint(self) -> int:
        """The size in the captured example."""
        text = self.form.format(*map(hint, self.operands))
        return int(eval(text, {"max": max, "min": min})) + self.more


class Sizes:
    """Reads sizes; the same symbol gets the same name, s0, s1 ... in the order they are met.

    names: of the symbols. derived: what sizes with names of their own are computed from.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.derived: dict[str, Derived] = {}
        self._known: dict[Derived, Derived] = {}

    def dim(self, size: Any) -> Dim:
        """An int or a torch.SymInt. Raises SizeError for a size that no text can say."""
        if isinstance(size, int):
            return size
        return self._dim(size.node.expr, size.node.shape_env)

    def _dim(self, expr: sympy.Expr, env: Any, more: int = 0) -> Dim:
        """more: what is added to the expression, which together may be the size of an axis."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            if expr not in env.backed_var_to_val:
                raise SizeError("a size depends on a tensor's values")
            return Sym.named(self._name(str(expr)), int(env.backed_var_to_val[expr]))
        if expr.is_Add:
            number = next((int(a) for a in expr.args if a.is_Integer), 0)
            total: Dim = 0
            for a in expr.args:
                part = self._dim(a, env, number if len(expr.args) == 2 else 0)
                total = part + total
            return total
        parts = [self._dim(a, env) for a in expr.args]
        if expr.is_Mul:
            product: Dim = 1
            for part in parts:
                product = part * product
            return product
        if expr.is_Pow and isinstance(parts[1], int) and parts[1] > 0:
            power: Dim = 1
            for _ in range(parts[1]):
                power = parts[0] * power
            return power
        form = _DERIVED.get(type(expr).__name__)
        if form is None or not parts:
            raise SizeError(f"a size is {expr}, which no arithmetic of whole numbers gives", expr)
        while len(parts) > 2:  # the largest or smallest of several
            parts = [*parts[:-2], self._derived(Derived(form, tuple(parts[-2:])), expr)]
        return self._derived(Derived(form, tuple(parts), max(more, 0)), expr)

    def number(self, value: torch.SymFloat) -> int | float | Sym | Ratio:
        """A number that is computed from sizes. Raises SizeError for one that is more than a size
        over another."""
        return self._number(value.node.expr, value.node.shape_env)

    def _number(self, expr: sympy.Expr, env: Any) -> int | float | Sym | Ratio:
        name = type(expr).__name__
        if expr.is_Float:
            return int(expr) if float(expr).is_integer() else float(expr)
        if name == "ToFloat":
            return self._number(expr.args[0], env)
        if name in ("IntTrueDiv", "FloatTrueDiv"):
            top, bottom = (self._number(a, env) for a in expr.args)
            if isinstance(top, Ratio) or isinstance(bottom, Ratio):
                raise SizeError(f"a number is {expr}", expr)
            if isinstance(top, Sym) and not isinstance(bottom, float):
                exact = top.divided_by(bottom)
                if exact is not None:
                    return exact
            if isinstance(top, Sym) or isinstance(bottom, Sym):
                return Ratio(top, bottom)
            return top / bottom
        if expr.is_Add:
            total: Dim = 0
            for a in expr.args:
                part = self._number(a, env)
                if not isinstance(part, (int, Sym)):
                    raise SizeError(f"a number is {expr}", expr)
                total = part + total
            return total
        return self._dim(expr, env)

    def _derived(self, made: Derived, expr: sympy.Expr) -> Dim:
        """The size, as a named one less what is added to that."""
        key = replace(made, more=0)
        known = self._known.setdefault(key, made)
        if known.hint < 2:  # a named size is not 1, which would be spread
            raise SizeError(f"a size is {expr}, which is {known.hint} in the example", expr)
        name = self._name(known.text({}))
        self.derived[name] = known
        return Sym.named(name, known.hint) - known.more

    def _name(self, key: str) -> str:
        return self.names.setdefault(key, f"s{len(self.names)}")


_WINDOWS = re.compile("(avg|max)_pool")  # functions whose windows lie one after the other


def check_sizes(graph: torch.fx.Graph) -> None:
    """Raises SizeError where a tensor that the outputs are computed from has a size that no text
    can say: a reader of the graph would, after the decomposition, which takes longest.

    So do a convolution whose result's sizes are no polynomials and a pooling of images whose sizes
    vary: of fixed sizes the op table knows them.
    """
    sizes = Sizes()
    needed = {n for n in graph.nodes if n.op == "output"}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    found: list[SizeError] = []
    for node in graph.nodes:
        if node in needed and node.op == "call_function":
            name = getattr(node.target, "__name__", "")
            found += _in_the_way(name, node.meta.get("val"), sizes)
            args = [a.meta.get("val") if isinstance(a, torch.fx.Node) else a for a in node.args]
            found += _in_windows(name, args, sizes)
    _raise_all(found)


def _in_the_way(name: str, result: Any, sizes: Sizes) -> Iterator[SizeError]:
    """The sizes of a call's result that stand in the way. name: of the function."""
    for value in pytree.tree_leaves(result):
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            try:
                dim = sizes.dim(size)
            except SizeError as error:
                yield error
                continue
            if not isinstance(dim, Sym):
                continue
            strided = name.startswith("conv") and dim.names() & set(sizes.derived)
            pooled = bool(_WINDOWS.match(name)) and axis > 1
            if strided or pooled:
                expr = size.node.expr  # type: ignore[attr-defined]
                yield SizeError(f"a size is {expr}, which is no polynomial", expr)


def _in_windows(name: str, args: Sequence[Any], sizes: Sizes) -> Iterator[SizeError]:
    """The sizes of an image that adaptive pooling divides into windows that are all alike.

    args: of the call, a tensor and how many windows there are.
    """
    if not name.startswith("adaptive_") or len(args) < 2 or not isinstance(args[0], torch.Tensor):
        return
    places = int(name.split("pool")[1][0])
    given, made = list(args[0].shape[-places:]), args[1]
    counts = [made] * places if isinstance(made, int) else list(made)
    if set(counts) == {1} or not all(isinstance(m, int) and m > 0 for m in counts):
        return
    try:
        dims = [sizes.dim(n) for n in given]
    except SizeError:
        return
    if any(hint(d) % m for d, m in zip(dims, counts, strict=False)):
        return
    for size, dim in zip(given, dims, strict=True):
        if isinstance(dim, Sym):
            expr = size.node.expr  # type: ignore[attr-defined]
            yield SizeError(f"a size is {expr}, which is divided into windows", expr)


def _raise_all(found: Sequence[SizeError]) -> None:
    """Raises one error for all that is to blame, so that it is fixed at once."""
    if found:
        exprs = [e.expr for e in found if e.expr is not None]
        raise SizeError(str(found[0]), sympy.Tuple(*exprs) if exprs else None)


_LOOKS_ON = 256  # calls of functions


class AtOnce(TorchFunctionMode):
    """Ends a run of forward where convolutions or pooling are of sizes of which `check_sizes` would
    say, when all is exported, that they stand in the way. The rest of an export takes many seconds.

    inputs: how many tensors there are. Where there are several, a run goes on for some calls, so
    that the sizes of all are told together. error: what it raised; forward may have caught it.
    """

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.looks_on = _LOOKS_ON if inputs > 1 else 0
        self.sizes = Sizes()
        self.found: list[SizeError] = []
        self.calls = 0  # since the first was found
        self.error: SizeError | None = None

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        if name.startswith(("conv", "adaptive_")) or _WINDOWS.match(name):
            self.found += _in_the_way(name, result, self.sizes)
            self.found += _in_windows(name, args, self.sizes)
        self.calls += bool(self.found)
        if self.calls > self.looks_on:
            self.tell()
        return result

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        if kind is None or issubclass(kind, Exception):
            self.tell()

    def tell(self) -> None:
        """Raises what was found."""
        try:
            _raise_all(self.found)
        except SizeError as error:
            self.error = error
            raise
