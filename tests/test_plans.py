"""What models become: the kernels of their plans, and which of them there are none of."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from refold import pipeline
from refold.ir import leaf, make
from refold.pipeline import Options
from refold.plan import Group, Template
from zoo import CASES

# model of the zoo, mode -> the kernels' templates in order
KERNELS = {
    ("TwoReadersOfOneProduct", "both"): ["matmul", "rows"],
    ("LowRankUpdate", "both"): ["matmul"],
    ("WeightNorm", "both"): ["rows"],
    ("Mlp", "both"): ["matmul", "matmul"],
    ("FlattenedProduct", "eval"): ["matmul"],
    ("OtherResultInTraining", "train"): ["matmul"],
    ("OtherResultInTraining", "eval"): ["matmul"],
    ("PlainArguments", "both"): ["matmul"],
    ("MovingAverage", "eval"): ["matmul"],
    ("GroupsOfFeatures", "both"): ["matmul", "rows"],
    ("CausalAttention", "both"): ["matmul", "matmul", "rows", "matmul"],
}


def plan_of(name: str, mode: str):
    torch.manual_seed(0)
    module = CASES[name]()
    _, device = pipeline.target_for("cpu")
    found = pipeline.derive(module, module.inputs(), device, Options())
    return {d.mode.name: d.mode.plan for d in found}[mode]


@pytest.mark.parametrize(("name", "mode"), KERNELS)
def test_kernels(name, mode):
    groups = plan_of(name, mode).groups
    assert [g.template.value for g in groups] == KERNELS[name, mode]


def test_a_product_stores_one_value():
    x = leaf("input", (5, 7), torch.float32, name="x", index=0)
    w = leaf("param", (3, 7), torch.float32, name="w")
    product = make("linear", x, w)
    tail = make("sin", product)
    dims = product.shape
    Group("one", Template.MATMUL, dims, (product, tail), (x, w), (tail,))
    with pytest.raises(AssertionError, match="stores one value"):
        Group("two", Template.MATMUL, dims, (product, tail), (x, w), (product, tail))


class Sets(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.seen, self.items = 0, [1]

    def forward(self, x):
        self.seen += 1
        return self.fc(x)


class Appends(Sets):
    def forward(self, x):
        self.items.append(x.shape[0])
        return self.fc(x)


@pytest.mark.parametrize(("cls", "name"), [(Sets, "seen"), (Appends, "items")])
def test_an_attribute_that_forward_sets_is_seen_and_left_alone(cls, name):
    module = nn.Sequential(cls())
    plain = nn.Module.__setattr__
    _, device = pipeline.target_for("cpu")
    (found,) = pipeline.derive(module, [torch.randn(2, 4)], device, Options())
    assert found.mode.kept == f"forward sets the attribute 0.{name}, which is no buffer"
    assert (module[0].seen, module[0].items) == (0, [1])
    assert nn.Module.__setattr__ is plain
