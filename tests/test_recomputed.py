"""Cheap values of a library call's result are computed by each kernel that reads them, to the same
bits, and stored by none."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agree import check_values
from refold import pipeline
from refold.derive import Options, derive
from refold.ir import Kind, Node
from refold.plan import Group, Plan
from refold.planner import plan_price
from test_models import written
from tests.emulator.test_modules import built_for_emulator

Function = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


class Net(nn.Module):
    """A convolution that the library computes, and what reads it, a vector and a number."""

    def __init__(self, read: Function, bias: bool = False) -> None:
        super().__init__()
        self.conv, self.read = nn.Conv2d(3, 8, 3, bias=bias), read
        self.s = nn.Parameter(torch.linspace(0.3, 1.7, 8).view(8, 1, 1))
        self.t = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: torch.Tensor) -> object:
        return self.read(self.conv(x), self.s, self.t)


def group_norm(y: torch.Tensor, groups: int, s: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    return F.group_norm(y, groups, s.flatten(), s.flatten(), eps)


def batch_norm(y: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(y, None, None, s.flatten(), training=True)


AGAIN: dict[str, Net] = {
    "relu, norm of groups": Net(lambda y, s, t: group_norm(y.relu(), 2, s)),
    "scaled, norm of groups": Net(lambda y, s, t: group_norm(y.clamp(min=-1) * t, 4, s)),
    "bias, batch norm": Net(lambda y, s, t: batch_norm(y, s), bias=True),
    "bias, batch norm, pooled": Net(
        lambda y, s, t: F.max_pool2d(torch.tanh(batch_norm(y, s)), 2), bias=True
    ),
    "two poolings": Net(
        lambda y, s, t: (F.max_pool2d(y.relu() * s, 3, 2), F.avg_pool2d(y.relu() * s, 2))
    ),
}
STORED: dict[str, Net] = {
    "a result": Net(lambda y, s, t: (y.relu(), group_norm(y.relu(), 2, s))),
    "no cheap one": Net(lambda y, s, t: group_norm(F.gelu(y), 2, s)),
    "an exponential, cheap as it is": Net(lambda y, s, t: group_norm(y.exp(), 2, s)),
    "a square, which sums take": Net(lambda y, s, t: group_norm((y + t).square(), 2, s)),
    "factors of a part of a row": Net(lambda y, s, t: group_norm(y.relu() * s, 2, s)),
    "a library call reads it": Net(
        lambda y, s, t: (F.conv2d(y.relu(), s[None]), group_norm(y.relu(), 2, s))
    ),
}


def planned(net: nn.Module, target: str = "cuda:sm_90") -> tuple[Plan, float]:
    torch.manual_seed(0)
    _, device = pipeline.target_for(target, "ieee")
    x = torch.randn(16, 3, 42, 42)
    (found,) = derive(net.eval(), [x], device, Options(measure=False, accuracy=False))
    plan = found.mode.plan
    assert plan is not None
    return plan, plan_price(plan, device.at(torch.float32)).seconds


def stored(plan: Plan) -> list[Node]:
    """Values of whole images that kernels store and others read."""
    read = {i for s in plan.steps if isinstance(s, Group) for i in s.inputs}
    read |= {i.inputs[0] for i in read if i.op == "reshape"}
    roots = {r.inputs[0] if r.op == "reshape" else r for r in plan.graph.roots()}
    made = (n for g in plan.groups for n in g.outputs if n.kind is Kind.POINTWISE)
    whole = 16 * 8 * 40 * 40
    found = []
    for n in made:
        sizes = 1
        for d in n.shape:
            sizes *= d if isinstance(d, int) else d.hint
        if sizes == whole and n in read and n not in roots:
            found.append(n)
    return found


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
@pytest.mark.parametrize("case", AGAIN)
def test_each_kernel_computes_it(case: str, target: str) -> None:
    plan, _ = planned(AGAIN[case], target)
    assert stored(plan) == []
    assert sum(bool(g.again) for g in plan.groups) > 1


@pytest.mark.parametrize("case", STORED)
def test_what_would_cost_more_or_differ_is_stored(case: str) -> None:
    plan, _ = planned(STORED[case])
    assert not any(g.again for g in plan.groups)


def test_a_pass_is_saved() -> None:
    """By the price: as much as without the value."""
    plain = Net(lambda y, s, t: group_norm(y, 2, s))
    assert planned(AGAIN["relu, norm of groups"])[1] == pytest.approx(planned(plain)[1], rel=0.03)


def test_products_are_rounded_by_themselves_in_each_kernel() -> None:
    """nvcc would fuse one with the sum that a kernel takes of it, and the mean were another's."""
    _, result = written(AGAIN["scaled, norm of groups"].eval(), [X], "cuda:sm_90")
    assert result.text.count("mul_rn<V>(maximum1") == 2


X = torch.randn(16, 3, 42, 42)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_compute_the_same(dtype: torch.dtype) -> None:
    class All(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nets = nn.ModuleList(AGAIN.values())

        def forward(self, x: torch.Tensor) -> list[object]:
            return [net(x) for net in self.nets]

    def flat(results: object) -> list[torch.Tensor]:
        nested = (r if isinstance(r, (list, tuple)) else [r] for r in results)
        return [t for r in nested for t in r]

    torch.manual_seed(0)
    pair = written(All().to(dtype).eval(), [X[:4].to(dtype)], "cuda:sm_90")
    module, fast = built_for_emulator(pair)
    special = torch.randn(2, 3, 33, 21)
    special[0, 0, 3, 5], special[1, 1, 9, 9] = torch.nan, torch.inf
    for drawn in (X[:4], torch.randn(3, 3, 31, 20) * 3 + 100, special):
        x = drawn.to(dtype)
        with torch.no_grad():
            truth = copy.deepcopy(module).double()(x.double())
            sides = map(flat, (fast(x), module(x), truth))
            for got, eager, exact in zip(*sides, strict=True):
                check_values(got, eager, exact)


def of_equal_rows() -> tuple[Net, torch.Tensor]:
    """A norm without an eps, and images of which the groups of all but one have equal values."""
    net = Net(lambda y, s, t: group_norm(y.clamp(min=-1) * t, 4, s, 0.0)).eval()
    with torch.no_grad():
        net.conv.weight.zero_()
        net.conv.weight[:, 0, 1, 1] = torch.tensor([0.1, 0.1, 1 / 3, 1 / 3, -0.7, -0.7, 1.0, 2.0])
    x = torch.rand(4, 3, 42, 42)
    for i, value in enumerate((0.1, 1e4 + 0.1, 7.7)):
        x[i] = value
    return net, x


def test_equal_rows_stay_exact() -> None:
    """Without an eps a group of equal values is no number: what its mean comes off has the bits
    that the mean was taken of."""
    net, x = of_equal_rows()
    assert stored(planned(net)[0]) == []
    module, fast = built_for_emulator(written(net, [X[:4]], "cuda:sm_90"))
    with torch.no_grad():
        got, truth = fast(x), copy.deepcopy(module).double()(x.double())
    assert truth[:3, :6].isnan().all() and not truth[3].isnan().any()
    torch.testing.assert_close(got[:3].isnan(), truth[:3].isnan())
    torch.testing.assert_close(got[3].double(), truth[3], rtol=1e-3, atol=1e-4)
