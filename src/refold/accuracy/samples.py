"""The example, moved and scaled, on part of its batch: what the model makes of it, and truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold.accuracy.indices import Within
from refold.capture import Captured, CaptureError, Example, kept, set_modes
from refold.capture.arguments import Arguments
from refold.capture.twin import NoTwin, twin_of
from refold.ir import Graph, Node
from refold.ir.evaluate import concrete
from refold.ir.ops import CONVOLUTIONS
from refold.ir.rounded import run_exact, run_rounded
from refold.ir.seeds import seeded

MOVED = 1e3  # deviations
SCALES = (1e15, 1e-15)
NUDGED = "with other last digits"  # no sample of the bar's
WORK = 3e8  # multiplications that one evaluation may take, unless the smallest batch takes more
MOST = 2e10  # more are not measured
ROWS = 16  # the smallest batch
SLOW = 2e9  # from so many on a batch of images, of many places each, is cut further
IMAGES = 4  # the smallest batch of these

Values = dict[Node, torch.Tensor]


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Unmeasured(Exception):
    """Nothing can be measured; the text says why."""


@dataclass
class Sample:
    """One set of arguments: what eager makes of it, the graph as captured, and the truth."""

    name: str
    leaves: Values
    sizes: Mapping[str, int]
    eager: list[torch.Tensor]
    apart: list[torch.Tensor]
    truth: list[torch.Tensor]


@dataclass
class Samples:
    graph: Graph
    make: Callable[[str, int], Sample]
    names: tuple[str, ...]
    known: dict[tuple[str, int], Sample | None] = field(default_factory=dict)

    def get(self, name: str, draw: int = 0) -> Sample | None:
        """None where the model refuses such values."""
        if (name, draw) not in self.known:
            try:
                self.known[name, draw] = self.make(name, draw)
            except Exception:  # what runs here is a user's model
                if (name, draw) == (self.names[0], 0):
                    raise
                self.known[name, draw] = None
        return self.known[name, draw]


def samples_of(
    module: torch.nn.Module, example: Example, captured: Captured, graph: Graph
) -> Samples:
    try:
        arguments = Arguments(module, example)
    except CaptureError as error:
        raise Unmeasured(str(error)) from error
    given = arguments.tensors
    fields = captured.tensors
    if len(given) != len(fields):
        raise Unmeasured("forward replaces attributes")
    held = [*given, *module.parameters(), *module.buffers()]
    if any(v.is_meta for v in held):
        raise Unmeasured("tensors on the meta device hold no values")
    sizes = {
        name: int(given[fields.index(f)].shape[axis])
        for name, (f, axis) in captured.symbol_sources().items()
    }
    numbers = {name: int(arguments.counted[path]) for name, path in captured.numbers.items()}
    sizes = _cut(captured, graph, sizes, numbers)
    try:
        shapes = [[concrete(d, sizes) for d in f.shape or ()] for f in fields]
    except KeyError as error:
        raise Unmeasured(f"the size {error} is read from no argument") from error
    fitting = [_part(v, shape) for v, shape in zip(given, shapes, strict=True)]
    fixed = _parameters(module, captured, graph)
    try:
        alone = twin_of(module)  # hooks act around what was captured
    except NoTwin:
        alone = module

    def make(name: str, draw: int) -> Sample:
        # what is moved may be rounded, and looked up
        within: Any = (
            Within if _on_gpu(given) and (draw or name != samples.names[0]) else nullcontext
        )
        with within():
            return of([_variant(v, name, draw) for v in fitting], name)

    def of(tensors: Sequence[torch.Tensor], name: str) -> Sample:
        leaves = dict(fixed)
        for n in graph.nodes():
            if n.op == "input":
                leaves[n] = tensors[n["index"]]
        truth = run_exact(graph.roots(), leaves, sizes)
        apart = run_rounded(graph.roots(), leaves, sizes)
        # a forward that asks how its arguments lie is not asked about copies that lie otherwise
        alike = all(f.strides in (None, t.stride()) for f, t in zip(fields, tensors, strict=True))
        eager = (
            _eager(lambda: arguments.call(alone, tensors)[0], alone, captured, sizes)
            if alike
            else None
        )
        own, exact = ([made[r] for r in graph.roots()] for made in (apart, truth))
        return Sample(name, leaves, sizes, own if eager is None else eager, own, exact)

    try:
        moved = "moved", *map(_scaled_name, SCALES)
        floats = any(v.is_floating_point() for v in given)
        samples = Samples(graph, make, ("the example", *(moved if floats else ())))
        samples.get("the example")
    except Exception as error:  # what runs here is a user's model on a part of the example
        said = first_line(error)
        raise Unmeasured(f"a part of the example could not be run ({said})") from error
    return samples


def _on_gpu(given: Sequence[torch.Tensor]) -> bool:
    """Where a look outside of a tensor is no error of Python's."""
    return any(v.is_cuda for v in given)


def _scaled_name(scale: float) -> str:
    return f"scaled by {scale:g}"


def is_scaled(name: str) -> bool:
    """Whether a sample of this name is the example times a number."""
    return name in map(_scaled_name, SCALES)


def _variant(v: torch.Tensor, name: str, draw: int) -> torch.Tensor:
    """A tensor moved or scaled; another draw near it."""
    if not v.is_floating_point() or not v.numel():
        return v
    if draw or name == NUDGED:
        generator = torch.Generator().manual_seed(draw)
        noise = torch.randn(v.shape, generator=generator).to(v.device, v.dtype)
        v = v * (1 + (4 * torch.finfo(v.dtype).eps if name == NUDGED else 0.1) * noise)
    if name == "moved":
        known = v[v.isfinite()].float()
        spread = known.std().item() if known.numel() > 1 else 0.0
        return v + MOVED * (spread or 1.0)
    for scale in SCALES:
        if name == _scaled_name(scale):
            return v * scale
    return v


def _cut(
    captured: Captured, graph: Graph, sizes: dict[str, int], numbers: Mapping[str, int]
) -> dict[str, int]:
    """Smaller sizes where the example's take too long: the leading one first. numbers: sizes that
    stay."""
    leading = sorted(sizes, key=lambda s: captured.symbol_sources()[s][1])
    sizes = {**sizes, **numbers}
    of_images = any(n.op in CONVOLUTIONS for n in graph.nodes())
    for most, smallest in ((WORK, ROWS), (SLOW, IMAGES))[: 2 if of_images else 1]:
        for name in leading:
            least = max(smallest, captured.ranges.get(name, (0, None))[0])
            while _work(graph, sizes) > most and sizes[name] > least:
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


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (torch.Tensor, int, float, complex, str))


def _eager(
    call: Callable[[], Any],
    module: torch.nn.Module,
    captured: Captured,
    sizes: Mapping[str, int],
) -> list[torch.Tensor] | None:
    """What the module itself gives, and writes to its buffers; None where its results cannot be
    told apart."""
    # what forward draws is what the graph draws (`ir/rounded.py`)
    with kept(module), torch.no_grad(), seeded():
        set_modes(module, captured.training, captured.apart)
        result = call()
        buffers = {k: b.detach().clone() for k, b in module.named_buffers()}
    leaves = pytree.tree_leaves(result)
    if not all(map(_is_plain, leaves)):
        return None  # objects, which may hold tensors of their own
    tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
    outputs = captured.graph.outputs
    shapes = [[concrete(d, sizes) for d in o.shape] for o in outputs if o.mutates is None]
    if [list(t.shape) for t in tensors] != shapes:
        return None
    rest = iter(tensors)
    return [next(rest) if o.mutates is None else buffers[o.mutates] for o in outputs]
