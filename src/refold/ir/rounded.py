"""Run a graph as an emitted file does, or in float64: opaque calls included, and no value is kept
longer than it is needed. What a graph draws is the same whenever it is run here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

import torch

from refold.ir.evaluate import concrete
from refold.ir.graph import is_parametric, taken_of, topological
from refold.ir.grouped import grouped
from refold.ir.node import Node
from refold.ir.ops import OPS
from refold.ir.seeds import seeded
from refold.ir.shapes import RANK

F64 = torch.float64
# Rows of a product's shorter side up to which kernels sum each element in many parts: kSkinny of
# families/matmul/cpu/skinny.h. Libraries do otherwise: at a depth of 8192 PyTorch erred 3 to 6
# times as much there on an AMD processor.
THIN = 12
_PART = 32  # products of each partial sum of such a product
Folds = MutableMapping[Node, torch.Tensor]


def run_rounded(
    roots: Iterable[Node],
    leaves: Mapping[Node, torch.Tensor],
    sizes: Mapping[str, int],
    folds: Folds | None = None,
) -> dict[Node, torch.Tensor]:
    """The values of `roots`, each op in its own dtype as PyTorch computes it but for thin products.

    folds: what follows from parameters alone is computed in float64 and rounded once, and is kept
    here for the next call; None: it is computed like everything else.
    Raises NotImplementedError for a call of PyTorch that cannot be made from its text.
    """
    roots = list(roots)
    if folds is not None:
        _fold(roots, leaves, folds)
    return _run(roots, leaves, sizes, folds or {}, exact=False)


def run_exact(
    roots: Iterable[Node],
    leaves: Mapping[Node, torch.Tensor],
    sizes: Mapping[str, int],
    watch: Callable[[Node, torch.Tensor], None] | None = None,
) -> dict[Node, torch.Tensor]:
    """The values of `roots` with every float in float64, and no rounding to 16 bits between.

    watch: is called with each value on the way to them.
    """
    return _run(list(roots), leaves, sizes, {}, exact=True, watch=watch)


def _run(
    roots: list[Node],
    leaves: Mapping[Node, torch.Tensor],
    sizes: Mapping[str, int],
    known: Mapping[Node, torch.Tensor],
    exact: bool,
    watch: Callable[[Node, torch.Tensor], None] | None = None,
) -> dict[Node, torch.Tensor]:
    order = topological(roots, known)
    if any(n.row.draws for n in order):  # the same for each graph that is compared
        with seeded():
            return _in_order(roots, order, leaves, sizes, known, exact, watch)
    return _in_order(roots, order, leaves, sizes, known, exact, watch)


def _in_order(
    roots: list[Node],
    order: list[Node],
    leaves: Mapping[Node, torch.Tensor],
    sizes: Mapping[str, int],
    known: Mapping[Node, torch.Tensor],
    exact: bool,
    watch: Callable[[Node, torch.Tensor], None] | None,
) -> dict[Node, torch.Tensor]:
    last = {i: k for k, n in enumerate(order) for i in n.inputs}
    last |= dict.fromkeys(roots, len(order))
    done: dict[Node, torch.Tensor] = {}
    calls: dict[Any, Any] = {}
    spread = set() if exact else {taken_of(n) for n in order if n.op == "var"}
    for k, node in enumerate(order):
        inner = [done[i] if i in done else known[i] for i in node.inputs]
        done[node] = value_of(node, inner, leaves, sizes, exact, calls)
        if spread and node.op == "mean" and taken_of(node) in spread:
            done[node] = _mean_of_equals(inner[0], done[node], node["axes"])
        if watch is not None:
            watch(node, done[node])
        for i in node.inputs:
            if last[i] == k:
                done.pop(i, None)
    return {r: done[r] if r in done else known[r] for r in roots}


def _fold(roots: list[Node], leaves: Mapping[Node, torch.Tensor], folds: Folds) -> None:
    """Compute what is read of the parameters, but for the parameters themselves."""
    order = topological(roots)
    fixed: dict[Node, bool] = {}
    read = {i for n in order if not is_parametric(n, fixed) for i in n.inputs} | set(roots)
    wanted = [n for n in order if n in read and n.inputs and is_parametric(n, fixed)]
    for node in wanted:
        if node in folds:
            continue
        exact = run_exact([node], leaves, {})[node]
        folds[node] = exact.to(node.dtype) if node.is_float else exact


def value_of(
    node: Node,
    inner: list[torch.Tensor],
    leaves: Mapping[Node, torch.Tensor],
    sizes: Mapping[str, int],
    exact: bool,
    calls: dict[Any, Any],
) -> torch.Tensor:
    """The value of a node whose inputs are `inner`, padded to rank 5. calls: opaque calls that have
    been made, by what they were made of."""
    kind = F64 if exact and node.is_float else node.dtype
    if node.op == "scalar":
        device = next((v.device for v in leaves.values()), None)
        value = concrete(node["value"], sizes)
        return torch.full((1,) * RANK, value, dtype=kind, device=device)
    if node in leaves:
        return leaves[node].to(kind).reshape([concrete(d, sizes) for d in node.shape])
    if node.op == "aten":
        return _called(node, inner, sizes, exact, calls).to(kind)
    attrs = {k: concrete(v, sizes) for k, v in node.attrs}
    if node.op == "cast":
        attrs["dtype"] = kind
    # of float64 the library's result is all the truth there is
    if node.op == "linear" and kind != F64 and min(i.shape[-2] for i in inner) <= THIN:
        return _thin(*inner)
    row = OPS[node.op]
    if node.op == "conv" and kind == F64 and attrs["groups"] > 1 and row.as_torch_takes:
        x, w, b = row.as_torch_takes(inner, attrs)
        image = grouped(x, w, b, **attrs)
        return image[(None,) * (RANK - image.dim())]
    made = row.run(*inner, **attrs)
    return made.to(kind) if row.draws else made  # what is drawn follows from its own dtype


def _mean_of_equals(x: torch.Tensor, mean: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    """A mean; of values that are all equal it is their value, as our kernels make it beside a
    variance. PyTorch's own norms make it so, too, but not its mean."""
    least, most = x.amin(axes, keepdim=True), x.amax(axes, keepdim=True)
    return torch.where(least == most, most, mean)


def _thin(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x[...,M,K] by w[...,N,K], M or N few -> [...,M,N], each a sum of many partial ones, as our
    kernels make it, in 32 bits at least. A library's may add up all of K one after the other, with
    an error that no emitted file has."""
    dtype = x.dtype
    if dtype.is_floating_point and dtype.itemsize < 4:
        x, w = x.float(), w.float()
    count, rest = divmod(x.shape[-1], _PART)
    whole = count * _PART

    def parts(v: torch.Tensor) -> torch.Tensor:
        return v[..., :whole].reshape(*v.shape[:-1], count, _PART).transpose(-2, -3)

    made = (parts(x) @ parts(w).mT).sum(-3)
    if rest:
        made = made + x[..., whole:] @ w[..., whole:].mT
    return made.to(dtype)


def _called(
    node: Node,
    inner: list[torch.Tensor],
    sizes: Mapping[str, int],
    exact: bool,
    calls: dict[Any, Any],
) -> torch.Tensor:
    """An opaque call; one with several results is made once."""
    key = (node["target"], node.inputs, repr(node["args"]), repr(node["kwargs"]))
    if key not in calls:
        given = [
            v.reshape([concrete(d, sizes) for d in shape])
            for v, shape in zip(inner, node["shapes"], strict=True)
        ]
        device = given[0].device if given else torch.device("cpu")
        args = [_decoded(a, given, sizes, exact, device) for a in node["args"]]
        named = {k: _decoded(v, given, sizes, exact, device) for k, v in node["kwargs"]}
        calls[key] = _function(node["target"])(*args, **named)
    made = calls[key] if node["index"] is None else calls[key][node["index"]]
    if not isinstance(made, torch.Tensor):
        raise NotImplementedError(f"{node['target']} gives a {type(made).__name__}")
    return made[(None,) * (RANK - made.dim())] if made.dim() < RANK else made


def _function(target: str) -> Any:
    """PyTorch's function of that name."""
    space, *names = target.split(".")
    found: Any = torch if space == "torch" else getattr(torch.ops, space, None)
    for name in names:
        found = getattr(found, name, None)
    if found is None:
        raise NotImplementedError(f"no function {target}")
    return found


def _decoded(
    coded: Any,
    given: list[torch.Tensor],
    sizes: Mapping[str, int],
    exact: bool,
    device: torch.device,
) -> Any:
    if isinstance(coded, torch.dtype):
        return F64 if exact and coded.is_floating_point else coded
    if not isinstance(coded, tuple):
        return concrete(coded, sizes)
    kind, *rest = coded
    if kind == "$":
        return given[rest[0]]
    if kind == "[]":
        return [_decoded(r, given, sizes, exact, device) for r in rest]
    if kind == "@":
        return rest[1]
    if kind == "device":
        return torch.device(rest[0]) if rest[0] else device
    if kind == "torch":
        return getattr(torch, str(rest[0]).removeprefix("torch."))
    raise NotImplementedError(f"an argument {coded!r}")
