"""One graph of ATen: read, rewritten and planned, and what that and Inductor's would take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from refold.backend.loaded import Declined
from refold.backend.options import BackendOptions
from refold.backend.rival import rival_seconds
from refold.capture import Captured, CaptureError, widen
from refold.capture.aot import arguments_of, read_aot
from refold.devices import device_at_hand
from refold.emit.function import emit_function
from refold.emit.target import Target
from refold.engine import Optimized, optimize
from refold.ir import Kind, Node
from refold.ir.ops import ATTENTIONS, CONVOLUTIONS
from refold.layouts import is_image
from refold.pipeline import target_for
from refold.plan import ExternCall, Plan
from refold.plan.layout import places_of
from refold.planner import PlanPricer
from refold.planner.lifetimes import in_less_memory
from refold.price import product_flops
from refold.runtime.calls import _refold_in_channels

WORTH = 1.03  # Inductor's price over ours from which on ours is looked at


@dataclass(frozen=True)
class Derived:
    """What became of a graph. seconds, rival: predicted of our plan and of Inductor's code."""

    captured: Captured
    optimized: Optimized
    plan: Plan
    target: Target
    arguments: tuple[str, ...]
    seconds: float
    rival: float

    @property
    def gains(self) -> bool:
        return self.seconds * WORTH < self.rival

    def text(self) -> str:
        """The module that computes the graph."""
        steps = dict.fromkeys(s.rule for s in self.optimized.steps)
        story = [f"Rewritten by {', '.join(steps)}." if steps else "Nothing is rewritten."]
        return emit_function(self.captured, self.plan, self.target, self.arguments, story)

    def left(self) -> float:
        """FLOPs of products and attention that are calls of PyTorch."""
        nodes = [s.node for s in self.plan.steps if isinstance(s, ExternCall)]
        return sum(product_flops(n) for n in nodes if n.op in _MULTIPLIES)


_MULTIPLIES = {"linear", *CONVOLUTIONS, *ATTENTIONS}


def derive(graph: torch.fx.Graph, options: BackendOptions) -> Derived:
    """Read, rewrite and plan a graph. Raises Declined."""
    try:
        captured = read_aot(graph)
    except CaptureError as error:
        raise Declined(f"it cannot be read: {error}") from error
    place = captured.device
    assert place is not None
    name = options.target or target_at(place)
    target, device = target_for(name, options.float32)
    if target.device != place.type:
        raise Declined(f"its tensors are on {place}, the target is {target.name}")
    wide = widen(captured.graph)
    dtype = next((f.dtype for f in captured.tensors if f.dtype and f.dtype.is_floating_point), None)
    images, images_last = _images(graph, captured)
    device = device.at(dtype)
    pricer = PlanPricer(device, wide.stored, wide.every, dtype, images, images_last)
    rival = rival_seconds(pricer.plan(wide.graph, {n: n for n in wide.graph.nodes()}), device)
    optimized = optimize(wide.graph, pricer, strict=options.strict)
    plan = in_less_memory(pricer.plan(optimized.graph, optimized.originals))
    names = tuple(n.name for n in arguments_of(graph))
    if not plan.groups and not optimized.steps:
        raise Declined("nothing to rewrite or to fuse")
    _check_writes(plan)
    return Derived(captured, optimized, plan, target, names, optimized.price_after, rival)


def _check_writes(plan: Plan) -> None:
    """Raises Declined where a result or a new value lies in the memory of an input that is written
    before it is read."""
    written = {o.mutates for o in plan.outputs if o.mutates is not None}
    for out in plan.outputs:
        value = out.value
        while value.inputs and value.kind is Kind.MOVE:
            value = value.inputs[0]
        if value.op == "input" and value["name"] in written:
            raise Declined("what it gives lies where it writes")


def held_by(graph: torch.fx.GraphModule) -> tuple[torch.Tensor, ...]:
    """The tensors that a graph holds, in the order in which it takes them."""
    held = [n.target for n in graph.graph.nodes if n.op == "get_attr"]
    return tuple(_attribute(graph, str(path)) for path in held)


def is_product(node: torch.fx.Node) -> bool:
    return is_batch(node) or node.target in _calls("mm", "addmm", "mv", "addmv")


def has_batches(module: torch.fx.GraphModule) -> bool:
    """Whether there are batches of products in a graph, and products beside them."""
    batches = [is_batch(n) for n in module.graph.nodes if is_product(n)]
    return any(batches) and not all(batches)


def is_batch(node: torch.fx.Node) -> bool:
    return node.target in _calls("bmm", "baddbmm")


def _calls(*names: str) -> list[Any]:
    return [getattr(torch.ops.aten, name).default for name in names]


def flops_of(graph: torch.fx.Graph) -> float:
    """FLOPs of a graph's products, convolutions and attention."""
    return flops_of_calls(graph.nodes)


def flops_of_calls(nodes: Iterable[torch.fx.Node]) -> float:
    """The same of some of its calls."""
    return sum(map(_flops, nodes))


def opaque_flops(plan: Plan, graph: torch.fx.Graph) -> float:
    """FLOPs of calls that the op table does not know, such as attention."""
    kept = {
        str(s.node["target"])
        for s in plan.steps
        if isinstance(s, ExternCall) and s.node.op == "aten"
    }
    return sum(_flops(n) for n in graph.nodes if str(n.target) in kept)


def _flops(node: torch.fx.Node) -> float:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return 0.0
    count = flop_registry.get(target.overloadpacket)
    if count is None:
        return 0.0
    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), _hinted)
    return float(count(*args, **kwargs, out_val=_hinted(node)))


def _hinted(node: torch.fx.Node) -> Any:
    """What a node gives, its sizes as they are in the example, on no device."""

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty(sizes_of(value.shape), dtype=value.dtype, device="meta")
        return size_of(value) if isinstance(value, torch.SymInt) else value

    return torch.utils._pytree.tree_map(one, node.meta.get("val"))


def size_of(value: Any) -> int:
    """A size as it is in the example."""
    return int(value.node.hint) if isinstance(value, torch.SymInt) else int(value)


def sizes_of(values: Sequence[Any]) -> list[int]:
    return [size_of(v) for v in values]


def target_at(place: torch.device) -> str:
    """The target for tensors on a device. Raises Declined where there is none."""
    if place.type == "cpu":
        return "cpu"
    if place.type != "cuda":
        raise Declined(f"there is no target for tensors on {place}")
    with torch.cuda.device(place):
        return device_at_hand().name


def _images(graph: torch.fx.Graph, captured: Captured) -> tuple[dict[Node, int], bool]:
    """The arguments that are images with their channels last, and whether all images are."""
    places = {n.name: n.meta["val"] for n in arguments_of(graph)}
    leaves = [n for n in captured.graph.nodes() if n.op == "input"]
    images = [n for n in leaves if is_image(places[n["name"]])]
    found = {}
    for node in images:
        meta = places[node["name"]]
        made = torch.empty_strided(sizes_of(meta.shape), sizes_of(meta.stride()), device="meta")
        number = places_of(meta.dim())
        if number is not None and _refold_in_channels(made):
            found[node] = number
    return found, bool(images) and len(found) == len(images)


def _attribute(module: torch.nn.Module, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value
