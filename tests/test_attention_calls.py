"""What training computes of attention is kernels' where they take all of a call, else PyTorch's."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import flop_registry

from refold.backend.exact import in_float64
from refold.backend.graphs import Derived, derive
from refold.backend.loaded import Declined
from refold.backend.options import BackendOptions
from refold.capture.aot import read_aot
from refold.plan import ExternCall
from refold.planner.attention_calls import call_flops
from tests.emulator.module import emulated_graph

FORWARD = torch.ops.aten._scaled_dot_product_efficient_attention.default
BACKWARD = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default
SHAPE = (2, 3, 70, 64)


def graph_of(
    results: Sequence[int],
    *,
    backward: bool = False,
    dropout: float = 0.0,
    mask: tuple[int, ...] | None = None,
    causal: bool = False,
    shape: tuple[int, ...] = SHAPE,
    keys: int | None = None,
) -> torch.fx.Graph:
    """What `torch.compile` writes of one call for a GPU, of its results some."""
    graph = torch.fx.Graph()

    def given(
        name: str, sizes: tuple[int, ...], dtype: torch.dtype = torch.float32
    ) -> torch.fx.Node:
        node = graph.placeholder(name)
        node.meta["val"] = torch.empty(sizes, device="cuda", dtype=dtype)
        return node

    with FakeTensorMode():
        of_keys = (*shape[:2], keys or shape[2], shape[3])
        q, k, v = given("q", shape), given("k", of_keys), given("v", of_keys)
        bias = None if mask is None else given("mask", mask)
        if backward:
            padded = -(-shape[2] // 32) * 32
            kept = [given("out", shape), given("sums", (*shape[:2], padded))]
            kept += [given(name, (), torch.int64) for name in ("seed", "offset")]
            wanted = [True, True, True, 3 in results]
            args = (given("grad", shape), q, k, v, bias, *kept, dropout, wanted, causal)
            target = BACKWARD
        else:
            args, target = (q, k, v, bias, True, dropout, causal), FORWARD
        call = graph.call_function(target, args)
        call.meta["val"] = target(*torch.fx.map_arg(args, lambda n: n.meta["val"]))
        outs = []
        for index in results:
            out = graph.call_function(operator.getitem, (call, index))
            out.meta["val"] = call.meta["val"][index]
            outs.append(out)
        graph.output(tuple(outs))
    return graph


def planned(graph: torch.fx.Graph, target: str = "cuda:sm_90") -> Derived:
    return derive(graph, replace(BackendOptions(), target=target))


def ops_of(found: Derived) -> list[list[str]]:
    return [[n.op for n in g.nodes] for g in found.plan.groups]


def calls_of(found: Derived) -> set[str]:
    steps = (s.node for s in found.plan.steps if isinstance(s, ExternCall))
    return {str(n["target"]) for n in steps if n.op == "aten"}


@pytest.mark.parametrize("mask", [None, (2, 3, 70, 70), (2, 1, 70, 70)], ids=str)
def test_forward_and_what_it_keeps_are_one_kernel(mask: tuple[int, ...] | None) -> None:
    found = planned(graph_of((0, 1, 2, 3), mask=mask))
    prefix = "attention" if mask is None else "masked_attention"
    ((*ops,),) = ops_of(found)
    assert sorted(ops) == [prefix, f"{prefix}_sums"] and not calls_of(found)
    _, sums, seed, offset = found.plan.outputs
    assert sums.shape == (2, 3, 96) and seed.value is offset.value and seed.value.op == "scalar"


@pytest.mark.parametrize("results", [(0, 1, 2), (1, 2), (2,), (0,)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_one_call_are_one_kernel(results: tuple[int, ...], causal: bool) -> None:
    found = planned(graph_of(results, backward=True, causal=causal))
    names = [f"attention_{('query', 'key', 'value')[i]}_gradient" for i in results]
    ((*ops,),) = ops_of(found)
    assert sorted(ops) == sorted(names) and not calls_of(found)


def _left(
    results: Sequence[int] = (0, 1, 2), backward: bool = True, **given: Any
) -> torch.fx.Graph:
    return graph_of(results, backward=backward, **given)


LEFT = {
    "dropout": lambda: _left(dropout=0.5),
    "dropout in forward": lambda: _left(dropout=0.5, backward=False),
    "a mask's gradient": lambda: _left(results=(0, 3), mask=(2, 3, 70, 70)),
    "features that no kernel holds": lambda: _left(shape=(2, 3, 70, 136)),
    "few queries": lambda: _left(shape=(2, 3, 9, 64)),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_kernels_do_not_take_stays_one_call_of_pytorch(name: str) -> None:
    assert _is_left(LEFT[name](), "cuda:sm_90")


def test_other_devices_keep_the_call() -> None:
    for graph in (_left(), _left(backward=False)):
        assert _is_left(graph, "cuda:sm_80") and not _is_left(graph, "cuda:sm_90")


def _is_left(graph: torch.fx.Graph, target: str) -> bool:
    try:
        found = planned(graph, target)
    except Declined as reason:
        return any(why in str(reason) for why in ("nothing to rewrite", "draws random numbers"))
    return bool(calls_of(found))


def test_thirds_of_one_result_are_read_where_they_lie() -> None:
    graph = torch.fx.Graph()
    aten = torch.ops.aten
    with FakeTensorMode():
        x, w = graph.placeholder("x"), graph.placeholder("w")
        x.meta["val"] = torch.empty(140, 64, device="cuda")
        w.meta["val"] = torch.empty(64, 576, device="cuda")

        def call(target: Any, *args: Any) -> torch.fx.Node:
            node = graph.call_function(target, args)
            node.meta["val"] = target(*torch.fx.map_arg(args, lambda n: n.meta["val"]))
            return node

        whole = call(aten.view.default, call(aten.mm.default, x, w), [2, 70, 9, 64])
        thirds = [call(aten.slice.Tensor, whole, 2, 3 * i, 3 * i + 3) for i in range(3)]
        q, k, v = (call(aten.permute.default, t, [0, 2, 1, 3]) for t in thirds)
        out = graph.call_function(operator.getitem, (call(FORWARD, q, k, v, None, True), 0))
        out.meta["val"] = torch.empty(2, 70, 3, 64, device="cuda").permute(0, 2, 1, 3)
        graph.output((out,))
    text = planned(graph).text()
    forward = text[text.index("def call(args)") : text.index("call._boxed_call")]
    behind = forward[forward.index("_refold_kernels.matmul") :]
    assert behind.count("_refold_tokens(") == 3 and ".contiguous()" not in behind


@pytest.mark.parametrize("backward", [False, True])
def test_a_call_that_stays_is_priced_by_pytorchs_count(backward: bool) -> None:
    graph = graph_of((0,), backward=backward)
    call = next(n for n in graph.nodes if n.target in (FORWARD, BACKWARD))
    args = torch.fx.map_arg(call.args, lambda n: n.meta["val"])
    shapes = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to("meta"), args)
    known = flop_registry[call.target.overloadpacket](*shapes, out_val=None)
    # of forward alone the first result is read as an op of the table
    (node,) = (
        n for n in read_aot(graph_of((1,), backward=backward)).graph.nodes() if n.op == "aten"
    )
    assert call_flops(node) == known > 0


def test_weights_beside_sums_of_other_arithmetic() -> None:
    """Tensor cores round toward zero. Scores that all came out small by that would make all weights
    small, since their sums are forward's: of positive values 1e-6 of each gradient."""
    graph = graph_of((0, 1, 2), backward=True)
    call = emulated_graph(planned(graph).text()).call
    torch.manual_seed(0)
    q, k, v, g = (0.5 + torch.rand(SHAPE) for _ in range(4))
    out, sums = in_float64(FORWARD, [x.double() for x in (q, k, v)] + [None, True], {})[:2]
    kept = [out.float(), sums.float()]
    states = [torch.zeros((), dtype=torch.int64) for _ in range(2)]
    given = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    made = call([*given, *kept, *states, g])
    wanted = [True, True, True, False]
    args = [x.double() for x in (g, q, k, v)]
    truth = in_float64(
        BACKWARD, [*args, None, *(x.double() for x in kept), *states, 0.0, wanted], {}
    )
    of_values = (made[2].double() / truth[2] - 1).mean().item()
    assert abs(of_values) < 4e-7, of_values


# sizes of queries and keys, and what the rounding of a logarithm of 1e5 leaves of weights near ties
@pytest.mark.parametrize(("size", "near"), [(1e2, 0.1), (1e4, 1e-3), (1e9, 1e-3)])
def test_scores_that_float32_tells_apart_no_more(size: float, near: float) -> None:
    """A row's largest score, rounded, is far from what it was: its exponential must be 1, not what
    the rounding left, which overflowed from scores of 2^27 on."""
    torch.manual_seed(0)
    q, k, v, g = (by * torch.randn(SHAPE) for by in (size, size, 1.0, 1.0))
    given = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    out, sums = emulated_graph(planned(graph_of((0, 1))).text()).call(list(given))
    exact = in_float64(FORWARD, [x.double() for x in given] + [None, True], {})
    torch.testing.assert_close(out.double(), exact[0], rtol=1e-4, atol=1e-4)
    known = sums[..., : SHAPE[2]].double()
    torch.testing.assert_close(known, exact[1][..., : SHAPE[2]], rtol=1e-6, atol=1e-3)

    states = [torch.zeros((), dtype=torch.int64) for _ in range(2)]
    backward = emulated_graph(planned(graph_of((0, 1, 2), backward=True)).text())
    made = backward.call([*given, out, sums, *states, g])
    args = [x.double() for x in (g, *given)]
    wanted = [True, True, True, False]
    truth = in_float64(BACKWARD, [*args, None, *exact[:2], *states, 0.0, wanted], {})
    torch.testing.assert_close(made[2].double(), truth[2], rtol=near, atol=near)
    for found in made[:2]:  # weights are nearly 0 or 1, and a gradient is what rounding leaves
        assert found.isfinite().all() and found.abs().max() < 1e-4 * size


# by tensor cores, which round their sums, and by plain arithmetic, which rounds a score once
@pytest.mark.parametrize(
    ("moved", "spread", "times"), [(30.0, 0.1, 3.0), (1e3, 0.003, 3.0), (1e4, 0.01, 1.2)]
)
def test_scores_of_values_far_from_zero(moved: float, spread: float, times: float) -> None:
    """Rounding decides here which keys weigh how much. A sum of float32, one product after another,
    has several times the error of scores that are rounded once."""
    torch.manual_seed(0)
    q, k = (moved + spread * torch.randn(SHAPE) for _ in range(2))
    given = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, torch.randn(SHAPE))]
    out = emulated_graph(planned(graph_of((0,))).text()).call(list(given))[0]
    wide = [x.double() for x in given]
    scores = wide[0] @ wide[1].transpose(-1, -2) * 0.125
    exact, once = (torch.softmax(s, -1) @ wide[2] for s in (scores, scores.float().double()))
    ours, least = ((x.double() - exact).norm().item() for x in (out, once))
    assert ours < times * least, (ours, least)


def test_rows_of_zeros_are_no_reason_for_plain_arithmetic() -> None:
    """A block's rows behind its last query are zero, and a tile's keys may be: they make no score.
    The same queries in a whole block, or beside keys that are nearly zero, have the same bits."""

    def results(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        given = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        graph = graph_of((0,), shape=tuple(q.shape), keys=k.shape[2])
        out: torch.Tensor = emulated_graph(planned(graph).text()).call(given)[0]
        return out

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, rows, 64) for rows in (128, 128, 128))
    assert torch.equal(results(q[:, :, :100], 1e4 * k, v), results(q, 1e4 * k, v)[:, :, :100])
    k[:, :, 64:] = 0.0
    beside = results(1e4 * q, k, v)
    k[:, :, 64:] = 1e-30
    assert torch.equal(results(1e4 * q, k, v), beside)
