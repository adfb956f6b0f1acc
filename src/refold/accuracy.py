"""How accurate a rewritten graph is beside the model itself, measured on the example.

A rule's sides are equal in the reals, and the shadow proof bounds what one rule may lose. What a
whole derivation loses on a user's own data is measured here: the model as PyTorch runs it and the
rewritten graph, both against float64, on the example, on the example moved by 1e3 deviations, and
scaled by 1e15 and 1e-15, as far as PyTorch's own results are finite there. The bar: the root mean
square of the errors is at most FACTOR times eager's plus ULPS units in the last place. Where it is
not met, the rule whose step loses most is banned and the graph is rewritten anew without it.

The batch is cut so that this takes about as long as a few calls of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold.capture import Captured, kept
from refold.engine import Optimized
from refold.ir import Graph, Node, numel
from refold.ir.evaluate import concrete
from refold.ir.graph import is_parametric
from refold.ir.ops import CONVOLUTIONS
from refold.ir.rounded import run_exact, run_rounded

FACTOR = 1.5  # how many times eager's RMS error the rewritten graph may have
FACTOR_TF32 = 1.1  # where TF32 is allowed, whose own errors are large
ULPS = 2.0  # and how many units in the last place of the results' RMS beside
MOVED = 1e3  # deviations
SCALES = (1e15, 1e-15)
WORK = 3e8  # multiplications that one evaluation may take, unless the smallest batch takes more
MOST = 2e10  # more are not measured
ROWS = 16  # the smallest batch
TRIES = 6  # how many rules are banned one by one
AGAIN = 3  # further draws near the example before a failure counts

Values = dict[Node, torch.Tensor]


@dataclass(frozen=True)
class Accuracy:
    """What was measured.

    ratio: the largest of rewritten over eager errors (each plus half a unit in the last place), on
    `where`. banned: the rules that were banned for it. skipped: why nothing was measured, or None.
    """

    ratio: float = 0.0
    where: str = ""
    banned: tuple[str, ...] = ()
    skipped: str | None = None

    def __str__(self) -> str:
        if self.skipped is not None:
            return f"accuracy was not measured: {self.skipped}"
        text = f"error against float64: {self.ratio:.2g} of eager's at most ({self.where})"
        if self.banned:
            text += f"; for accuracy's sake without {', '.join(self.banned)}"
        return text


class Inaccurate(Exception):
    """No derivation meets the bar; the text is the reason."""


def accurate(
    module: torch.nn.Module,
    inputs: Sequence[Any],
    captured: Captured,
    graph: Graph,
    rewrite: Callable[[tuple[str, ...]], Optimized],
    tf32: bool = False,
) -> tuple[Optimized, Accuracy]:
    """The cheapest rewriting of `graph` that meets the bar, and what was measured.

    graph: the captured one, its 16-bit arithmetic made plain. rewrite: rewrites it without some
    rules. module: in any mode; it is called in the captured one, and left as it was.
    Raises Inaccurate where even the graph as it was captured does not meet it.
    """
    done = rewrite(())
    try:
        samples = _samples(module, inputs, captured, graph)
    except Unmeasured as reason:
        return done, Accuracy(skipped=str(reason))
    banned: list[str] = []
    bar = FACTOR_TF32 if tf32 else FACTOR
    while True:
        try:
            found = _measure(samples, done.graph, bar)
        except NotImplementedError as error:
            return done, Accuracy(skipped=str(error))
        if found.fails is None:
            return done, Accuracy(found.ratio, found.where, tuple(banned))
        if not done.rewrites:
            raise Inaccurate(
                f"the kernels' arithmetic would be less accurate than PyTorch's ({found.fails})"
            )
        names = {r.rule.name for r in done.rewrites}
        worst = _worst(found.failed, done) if len(banned) < TRIES else None
        banned += [worst] if worst is not None else sorted(names)
        done = rewrite(tuple(banned))


# --- samples --------------------------------------------------------------------------------------
class Unmeasured(Exception):
    """Nothing can be measured; the text says why."""


@dataclass
class _Sample:
    """One set of arguments: what eager makes of it, and the truth."""

    name: str
    leaves: Values
    sizes: Mapping[str, int]
    eager: list[torch.Tensor]
    truth: list[torch.Tensor]


@dataclass
class _Samples:
    graph: Graph
    make: Callable[[str, int], _Sample]
    names: tuple[str, ...]
    known: dict[tuple[str, int], _Sample] = field(default_factory=dict)

    def get(self, name: str, draw: int = 0) -> _Sample:
        if (name, draw) not in self.known:
            self.known[name, draw] = self.make(name, draw)
        return self.known[name, draw]


def _samples(
    module: torch.nn.Module, inputs: Sequence[Any], captured: Captured, graph: Graph
) -> _Samples:
    flat, structure = pytree.tree_flatten(list(inputs))
    given = [v for v in flat if isinstance(v, torch.Tensor)]
    fields = captured.tensors
    if len(given) != len(fields) or not any(v.is_floating_point() for v in given):
        raise Unmeasured("forward takes no tensor of floats")
    sizes = {
        name: int(given[fields.index(f)].shape[axis])
        for name, (f, axis) in captured.symbol_sources().items()
    }
    sizes = _cut(captured, graph, sizes)
    try:
        shapes = [[concrete(d, sizes) for d in f.shape or ()] for f in fields]
    except KeyError as error:
        raise Unmeasured(f"the size {error} is read from no argument") from error
    fitting = [_part(v, shape) for v, shape in zip(given, shapes, strict=True)]
    fixed = _parameters(module, captured, graph)

    def make(name: str, draw: int) -> _Sample:
        tensors = [_variant(v, name, draw) for v in fitting]
        rest = iter(tensors)
        args = [next(rest) if isinstance(v, torch.Tensor) else v for v in flat]
        leaves = dict(fixed)
        for n in graph.nodes():
            if n.op == "input":
                leaves[n] = tensors[n["index"]]
        truth = run_exact(graph.roots(), leaves, sizes)
        eager = _eager(module, pytree.tree_unflatten(args, structure), captured, leaves, sizes)
        return _Sample(name, leaves, sizes, eager, [truth[r] for r in graph.roots()])

    try:
        samples = _Samples(graph, make, ("the example", "moved", *map(_scaled_name, SCALES)))
        samples.get("the example")
    except Exception as error:  # what runs here is a user's model on a part of the example
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Unmeasured(f"a part of the example could not be run ({said})") from error
    return samples


def _scaled_name(scale: float) -> str:
    return f"scaled by {scale:g}"


def _variant(v: torch.Tensor, name: str, draw: int) -> torch.Tensor:
    """A tensor moved or scaled; another draw near it."""
    if not v.is_floating_point() or not v.numel():
        return v
    if draw:
        generator = torch.Generator().manual_seed(draw)
        noise = torch.randn(v.shape, generator=generator).to(v.device, v.dtype)
        v = v * (1 + 0.1 * noise)
    if name == "moved":
        known = v[v.isfinite()].float()
        spread = known.std().item() if known.numel() > 1 else 0.0
        return v + MOVED * (spread or 1.0)
    for scale in SCALES:
        if name == _scaled_name(scale):
            return v * scale
    return v


def _cut(captured: Captured, graph: Graph, sizes: dict[str, int]) -> dict[str, int]:
    """Smaller sizes where the example's take too long: the leading one first."""
    leading = sorted(sizes, key=lambda s: captured.symbol_sources()[s][1])
    for name in leading:
        least = max(ROWS, captured.ranges.get(name, (0, None))[0])
        while _work(graph, sizes) > WORK and sizes[name] > least:
            sizes[name] = max(least, sizes[name] // 2)
    if _work(graph, sizes) > MOST:
        raise Unmeasured("the example is too large, and its batch cannot be cut")
    return sizes


def _work(graph: Graph, sizes: Mapping[str, int]) -> float:
    """Multiplications and elements of one evaluation."""
    total = 0.0
    for n in graph.nodes():
        if n.inputs:
            own = math.prod(_sized(n.shape, sizes))
            deep = 1.0
            if n.op == "linear":
                deep = _sized(n.inputs[0].shape, sizes)[-1]
            elif n.op in CONVOLUTIONS:
                w = _sized(n.inputs[1].shape, sizes)
                deep = math.prod(w) / max(w[-len(n["strides"]) - 2], 1)
            elif n.op == "aten":
                deep = 64.0  # a guess
            total += own * deep
    return total


def _sized(shape: Sequence[Any], sizes: Mapping[str, int]) -> list[int]:
    try:
        return [int(concrete(d, sizes)) for d in shape]
    except KeyError as error:
        raise Unmeasured(f"the size {error} is read from no argument") from error


def _part(v: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    v = v.detach()
    for axis, size in enumerate(shape):
        if size > v.shape[axis]:
            raise Unmeasured("the sizes of the example cannot be cut")
        v = v.narrow(axis, 0, size)
    return v.clone(memory_format=torch.contiguous_format) if v.numel() else v


def _parameters(module: torch.nn.Module, captured: Captured, graph: Graph) -> Values:
    found: Values = {}
    for node in graph.nodes():
        if node.op in ("param", "state", "constant"):
            name = node["name"]
            value = captured.constants.get(name)
            if value is None:
                held: Any = module
                for part in name.split("."):
                    held = getattr(held, part, None)
                value = held
            if not isinstance(value, torch.Tensor):
                raise Unmeasured(f"{name} is no tensor")
            found[node] = value.detach().clone() if node.op == "state" else value.detach()
    return found


def _eager(
    module: torch.nn.Module,
    args: list[Any],
    captured: Captured,
    leaves: Values,
    sizes: Mapping[str, int],
) -> list[torch.Tensor]:
    """What the module itself gives, and writes to its buffers; where its results cannot be told
    apart, what the graph as captured gives."""
    roots = captured.graph.roots()
    state = torch.get_rng_state()
    with kept(module), torch.no_grad():
        module.train(captured.training)
        result = module(*args)
        buffers = {k: b.detach().clone() for k, b in module.named_buffers()}
    torch.set_rng_state(state)
    tensors = [v for v in pytree.tree_leaves(result) if isinstance(v, torch.Tensor)]
    outputs = captured.graph.outputs
    shapes = [[concrete(d, sizes) for d in o.shape] for o in outputs if o.mutates is None]
    if [list(t.shape) for t in tensors] == shapes:
        rest = iter(tensors)
        return [next(rest) if o.mutates is None else buffers[o.mutates] for o in outputs]
    by_name = {n["name"]: v for n, v in leaves.items()}
    own = {n: by_name[n["name"]] for n in captured.graph.nodes() if n.op in _NAMED}
    made = run_rounded(roots, own, sizes)
    return [made[r] for r in roots]


_NAMED = ("input", "param", "state", "constant")


# --- measuring ------------------------------------------------------------------------------------
@dataclass
class _Found:
    """ratio, where: the largest. fails: what does not meet the bar, or None; failed: on which."""

    ratio: float
    where: str
    fails: str | None
    failed: _Sample | None


def _measure(samples: _Samples, graph: Graph, bar: float) -> _Found:
    folds: Values = {}
    best = _Found(0.0, samples.names[0], None, None)
    for name in samples.names:
        try:
            sample = samples.get(name)
        except Exception:  # a model may refuse such values
            continue
        errors = [_errors(sample, graph, folds)]
        if not _meets(errors, bar):
            for draw in range(1, AGAIN + 1):  # eager may have been lucky this once
                errors.append(_errors(samples.get(name, draw), graph, folds))
            if not _meets(errors, bar):
                said = f"{_ratio(errors):.3g} times eager's error on {_words(name)}"
                return _Found(_ratio(errors), name, said, sample)
        if _ratio(errors) > best.ratio:
            best = _Found(_ratio(errors), _words(name), None, None)
    return best


def _words(name: str) -> str:
    return name if name == "the example" else f"the example {name}"


@dataclass
class _Error:
    """Sums of squares over one result: errors of both sides, values; and what cannot be summed."""

    eager: float
    rewritten: float
    values: float
    ulp: float
    lost: bool


def _errors(sample: _Sample, graph: Graph, folds: Values) -> list[_Error]:
    made = run_rounded(graph.roots(), sample.leaves, sample.sizes, folds)
    triples = zip(sample.eager, (made[r] for r in graph.roots()), sample.truth, strict=True)
    return [_error(e, m.reshape(e.shape), t.reshape(e.shape)) for e, m, t in triples]


def _error(eager: torch.Tensor, made: torch.Tensor, truth: torch.Tensor) -> _Error:
    if not eager.is_floating_point():
        return _Error(0.0, 0.0, 0.0, 1.0, False)
    known = eager.isfinite() & truth.isfinite()
    known &= truth.abs() <= torch.finfo(eager.dtype).max
    lost = bool((known & ~made.isfinite()).any())
    lost |= bool((eager.isnan() & truth.isnan() & ~made.isnan()).any())
    e, m, t = eager[known].double(), made[known].double(), truth[known]
    scale = t.abs().max().item() if t.numel() else 0.0
    if scale == 0.0:
        scale = 1.0
    squares = [
        ((v / scale).square().mean().item() if t.numel() else 0.0) for v in (e - t, m - t, t)
    ]
    # relative to the largest, so that no square leaves the range of float64
    return _Error(squares[0], squares[1], squares[2], torch.finfo(eager.dtype).eps, lost)


def _meets(errors: Sequence[Sequence[_Error]], bar: float) -> bool:
    for draws in zip(*errors, strict=True):
        if any(d.lost for d in draws):
            return False
        eager, made, values = (_rms([getattr(d, k) for d in draws]) for k in _SUMS)
        if not made <= bar * eager + ULPS * draws[0].ulp * values:
            return False
    return True


_SUMS = ("eager", "rewritten", "values")


def _ratio(errors: Sequence[Sequence[_Error]]) -> float:
    worst = 0.0
    for draws in zip(*errors, strict=True):
        if any(d.lost for d in draws):
            return math.inf
        eager, made, values = (_rms([getattr(d, k) for d in draws]) for k in _SUMS)
        half = draws[0].ulp / 2 * values
        worst = max(worst, (made + half) / (eager + half) if eager + half else 0.0)
    return worst


def _rms(squares: Sequence[float]) -> float:
    return math.sqrt(sum(squares) / len(squares))


# --- which step it was ----------------------------------------------------------------------------
def _worst(sample: _Sample | None, done: Optimized) -> str | None:
    """The rule whose application loses most on a sample, or None where none stands out."""
    assert sample is not None
    found: dict[str, float] = {}
    for name, before, after in _steps(done):
        try:
            truth = run_exact([before], sample.leaves, sample.sizes)[before]
            old = run_rounded([before], sample.leaves, sample.sizes)[before]
            new = run_rounded([after], sample.leaves, sample.sizes, {})[after]
        except (NotImplementedError, KeyError, RuntimeError):
            continue
        one = [[_error(old, new.reshape(old.shape), truth)]]
        found[name] = max(found.get(name, 0.0), _ratio(one))
    worst = max(found, key=lambda n: found[n], default=None)
    return worst if worst is not None and found[worst] > 1.0 else None


def _steps(done: Optimized) -> Iterator[tuple[str, Node, Node]]:
    memo: dict[Node, bool] = {}
    for r in done.rewrites:
        if r.before.is_float and not is_parametric(r.before, memo) and numel(r.before.shape) != 0:
            yield r.rule.name, r.before, r.after


__all__ = ["Accuracy", "Inaccurate", "accurate"]
