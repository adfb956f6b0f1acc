"""Where plans place values: a table of models, and placements that are wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from captures import captured_once, drawn
from refold import pipeline
from refold.backend.graphs import derive as derived_graph
from refold.backend.options import BackendOptions
from refold.derive import Options, derive
from refold.devices import DEVICES, DeviceModel
from refold.ir import Dim, Graph, Node, Output, Sym, as_scalar, leaf, make
from refold.ir.evaluate import evaluate
from refold.plan import Group, Plan
from refold.plan.buffers import Fresh, Handed, InPlaceOf, Place, Prepared, StateOf, ViewOf, Written
from refold.plan.reference import Incomplete, run_plan
from refold.planner import make_plan

# views of the sums of a batch norm of images, whose vectors kernels read by other shapes
_NORM = ["reshape at mean", "slice at reshape", "reshape at mean", "reshape at div"]
_SCALE = ["reshape at add", "reshape at mul"]


def statistics(name: str) -> list[str]:
    """The running statistics of a batch norm, which the kernel of its columns writes."""
    return [f"add in buffer {name}.running_mean", f"add in buffer {name}.running_var"]


@dataclass(frozen=True)
class Row:
    """Of a mode's plan: each value that lies in no memory of its own, as "op in op" for one written
    where another lay, "op in buffer name", or "op at op" for a view; the buffers that are copied
    before they are written; and how buffers are written: by kernels, added to, copied to.
    """

    places: list[str]
    copied: tuple[str, ...] = ()
    by_kernel: int = 0
    copied_to: int = 0


# model of the zoo, mode
PLACES: Mapping[tuple[str, str], Row] = {
    ("Mlp", "both"): Row([]),
    ("BatchNormTrain", "train"): Row([*statistics("bn"), "relu in linear"], by_kernel=3),
    ("BatchNormTrain", "eval"): Row([]),
    ("GroupedConvolution", "train"): Row([*_NORM, *statistics("norm"), *_SCALE], by_kernel=3),
    ("ResidualBlock", "train"): Row(
        [*_NORM, *statistics("m"), *_SCALE, *_NORM, *statistics("n"), *_SCALE], by_kernel=6
    ),
    # the mean of what was just written is subtracted from what it was made of
    ("MovingAverage", "train"): Row(["add in buffer mean", "sub in add"], by_kernel=2),
    # buffers handed to one another, and to the caller, are read before any is written
    ("BuffersHandedOn", "train"): Row(
        ["add in buffer norm.running_mean", "add in buffer norm.running_var"],
        ("history", "left", "now", "right", "square", "steps"),
        by_kernel=3,
        copied_to=8,
    ),
}


def derived(name: str, mode: str, target: str = "cpu") -> Plan:
    _, device = pipeline.target_for(target, "ieee")
    with captured_once():
        found = derive(*drawn(name), device, Options(accuracy=False))
    plan = {d.mode.name: d.mode.plan for d in found}[mode]
    assert plan is not None
    return plan


def words(place: Place) -> str | None:
    match place:
        case InPlaceOf(node):
            return f"in {node.op}"
        case StateOf(state):
            return f"in buffer {state['name']}"
        case ViewOf(node):
            return f"at {node.op}"
    return None


@pytest.mark.parametrize(("name", "mode"), PLACES)
def test_places(name: str, mode: str) -> None:
    buffers = derived(name, mode).buffers
    written = [h.written for h in buffers.handed]
    assert PLACES[name, mode] == Row(
        [f"{n.op} {words(p)}" for n, p in buffers.places.items() if words(p) is not None],
        tuple(sorted(n["name"] for n in buffers.copied)),
        written.count(Written.BY_KERNEL),
        written.count(Written.COPIED),
    )


# --- small plans, right and wrong -----------------------------------------------------------------
ROWS, WIDTH = 8, 6
HOPPER = DeviceModel(DEVICES["cuda:sm_90"], "tf32")


def value(name: str, *shape: Dim) -> Node:
    return leaf("input", shape, torch.float32, name=name, index=0)


def param(name: str, *shape: int) -> Node:
    return leaf("param", shape, torch.float32, name=name)


def product() -> Node:
    return make("relu", make("linear", value("x", ROWS, WIDTH), param("w", WIDTH, WIDTH)))


def below_the_largest(y: Node) -> Node:
    return make("exp", make("sub", y, make("max", y, axes=(-1,))))


def graph(*results: Node, **written: Node) -> Graph:
    """Results, each in memory of its own, and new values of buffers by name."""
    returned = [Output(n, n.shape[-2:], memory=f"result {i}") for i, n in enumerate(results)]
    return Graph((*returned, *(Output(n, n.shape[-2:], name) for name, n in written.items())))


Y = product()
E = below_the_largest(Y)
S = leaf("state", (ROWS, WIDTH), torch.float32, name="s")
SUM = make("add", S, Y)
NEG = make("neg", Y)
SECOND = make("neg", make("linear", Y, param("v", WIDTH, WIDTH)))
OVER = make("linear", E, param("v", WIDTH, WIDTH))
PART = make("slice", Y, axis=-2, start=2, length=4)
TURNED = make("permute", value("t", WIDTH, ROWS), order=(0, 1, 2, 4, 3))
MOST = make("max", Y, axes=(-1,))
WIDE = make("cast", leaf("input", (ROWS, WIDTH), torch.bfloat16, name="b"), dtype=torch.float32)
LARGE = make("linear", value("x", Sym.named("n", 4096), 256), param("w", 512, 256))


def normalised() -> Node:
    """What reads a product's value in 16 bits."""
    y = make("linear", value("x", Sym.named("n", 8192), 32), param("w", 4096, 32))
    mean, var = make("mean", y, axes=(-2,)), make("var", y, axes=(-2,), correction=0)
    return make(
        "mul", make("sub", y, mean), make("rsqrt", make("add", var, as_scalar(1e-5, var.dtype)))
    )


NORMALISED = normalised()


def leaves_of(plan: Plan, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    named = [n for n in plan.graph.nodes() if n.row.is_named]
    shapes = ((n, [sizes["n"] if isinstance(d, Sym) else d for d in n.shape[-2:]]) for n in named)
    return {n["name"]: torch.randn(shape).to(n.dtype) for n, shape in shapes}


def is_right(plan: Plan) -> bool:
    """Does a plan give what its graph means, and each result in memory of its own?"""
    sizes = {"n": 64}
    values = leaves_of(plan, sizes)
    leaves = {n: values[n["name"]] for n in plan.graph.nodes() if n.row.is_named}
    before = {name: v.clone() for name, v in values.items()}
    made = run_plan(plan, leaves, sizes)
    assert all(torch.equal(before[name], v) for name, v in values.items()), "leaves are written"
    results = [m for m, o in zip(made, plan.outputs, strict=True) if o.mutates is None]
    if len({m.untyped_storage().data_ptr() for m in results}) < len(results):
        return False
    meant = evaluate(plan.graph, values, sizes)
    return all(torch.allclose(a, b, 1e-4, 1e-4) for a, b in zip(made, meant, strict=True))


def changed(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, buffers=replace(plan.buffers, **changes))


def placed(plan: Plan, node: Node, place: Place) -> Plan:
    """The plan with a value in another place."""
    assert node in plan.buffers.places
    return changed(plan, places={**plan.buffers.places, node: place})


def in_16_bits(plan: Plan, rows: int, reader: bool) -> Plan:
    """The plan with its product's value in 16 bits from so many rows on, whether or not its reader
    knows."""
    first, second = plan.steps
    assert isinstance(first, Group) and isinstance(second, Group) and first.kernel is not None
    assert first.quantized is not None and second.quantized is not None
    first = replace(first, kernel=replace(first.kernel, quantized_from=rows))
    return replace(plan, steps=(first, second if reader else replace(second, quantized=None)))


def written_early(plan: Plan) -> Plan:
    handed = (plan.buffers.handed[0], Handed(Written.BY_KERNEL))
    return changed(placed(plan, SUM, StateOf(S)), handed=handed)


@dataclass(frozen=True)
class Fault:
    """A graph whose plan is right, and a change that makes it wrong.

    words: of the line that refuses the changed plan; None where its results are others.
    """

    name: str
    graph: Graph
    change: Callable[[Plan], Plan]
    words: str | None = None
    device: DeviceModel | None = None


FAULTS = (
    Fault(
        "over a value that a later kernel reads",
        graph(NEG, SECOND),
        lambda p: placed(p, NEG, InPlaceOf(Y)),
    ),
    Fault("over a result", graph(NEG, Y), lambda p: placed(p, NEG, InPlaceOf(Y))),
    Fault("a product over its side", graph(OVER), lambda p: placed(p, OVER, InPlaceOf(E))),
    Fault(
        "a view of another part",
        graph(make("exp", PART), MOST),
        lambda p: placed(p, PART, ViewOf(Y)),
    ),
    Fault(
        "a buffer that is written before it is read",
        graph(make("mul", S, make("sum", SUM, axes=(-2,))), s=SUM),
        written_early,
    ),
    Fault("a buffer that is returned", graph(S, s=SUM), lambda p: changed(p, copied=frozenset())),
    Fault(
        "a buffer that nothing writes",
        graph(s=SUM),
        lambda p: changed(p, handed=(Handed(Written.BY_KERNEL),)),
    ),
    Fault(
        "an address of what lies otherwise",
        graph(make("exp", TURNED)),
        lambda p: changed(p, dense=frozenset()),
    ),
    Fault(
        "one memory for two results",
        graph(Y, Y),
        lambda p: changed(p, handed=(Handed(), Handed())),
    ),
    Fault("no memory", graph(E), lambda p: changed(p, places={}), "has no memory for <relu"),
    Fault(
        "too little memory",
        graph(E, MOST),
        lambda p: placed(p, E, InPlaceOf(MOST)),
        "in memory of 8 elements",
    ),
    Fault(
        "memory of another dtype",
        graph(make("exp", WIDE)),
        lambda p: placed(p, p.graph.roots()[0], InPlaceOf(WIDE.inputs[0])),
        "stores torch.float32 where torch.bfloat16 lies",
    ),
    Fault(
        "a parameter that is not prepared",
        graph(Y),
        lambda p: changed(p, prepared=Prepared()),
        "reads <param",
    ),
    Fault(
        "a side that is not packed",
        graph(LARGE),
        lambda p: changed(p, given={}),
        "is not given <param",
        HOPPER,
    ),
    Fault(
        "16 bits that are read as 32",
        graph(NORMALISED),
        lambda p: in_16_bits(p, 32, reader=False),
        device=HOPPER,
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_wrong_placement_is_a_wrong_result(fault: Fault) -> None:
    plan = make_plan(fault.graph, device=fault.device)
    assert is_right(plan), "the plan as it is made"
    if fault.words is None:
        assert not is_right(fault.change(plan))
        return
    with pytest.raises(Incomplete, match=re.escape(fault.words)):
        is_right(fault.change(plan))


def test_values_in_16_bits_lie_apart() -> None:
    plan = make_plan(graph(NORMALISED), device=HOPPER)
    assert is_right(in_16_bits(plan, 32, reader=True))


def test_a_value_may_lie_where_its_last_reader_writes() -> None:
    plan = make_plan(graph(E))
    assert plan.buffers.places[E] == InPlaceOf(Y)
    assert is_right(plan) and is_right(placed(plan, E, Fresh()))


def test_what_a_product_reads_transposed_is_laid_out_first() -> None:
    """The product's reader of it is a view, and what packs it reads it by its address."""
    traced = torch.fx.Graph()
    with FakeTensorMode():
        a, b = (traced.placeholder(name) for name in "ab")
        a.meta["val"] = torch.empty((96, 197, 64), device="cuda")
        b.meta["val"] = torch.empty((96, 197, 64), device="cuda").mT
        made = torch.ops.aten
        product = traced.call_function(made.bmm.default, (a, b))
        result = traced.call_function(made._softmax.default, (product, -1, False))
        for node in (product, result):
            args = torch.fx.map_arg(node.args, lambda n: n.meta["val"])
            node.meta["val"] = node.target(*args)  # type: ignore[operator]
    traced.output((result,))
    plan = derived_graph(traced, BackendOptions(target="cuda:sm_90")).plan
    assert any(g.family == "matmul" for g in plan.groups)
    inputs = {n for n in plan.graph.nodes() if n.op == "input"}
    assert inputs <= plan.buffers.dense and not plan.buffers.by_strides
