"""What models become: the kernels of their plans, and which of them there are none of."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from captures import captured_once, drawn
from refold import pipeline
from refold.codegen.body import Body
from refold.derive import Options, derive
from refold.devices import DeviceModel
from refold.ir import Node, leaf, make, numel
from refold.ir.graph import is_parametric
from refold.ir.ops import CONVOLUTIONS
from refold.plan import Group
from zoo import CASES

# model of the zoo, mode -> the kernels' families in order
KERNELS = {
    ("TwoReadersOfOneProduct", "both"): ["matmul", "rows"],
    ("LowRankUpdate", "both"): ["matmul"],
    ("WeightNorm", "both"): ["rows"],
    # a product for all steps' inputs, one a step, one for all heads
    ("Loop", "both"): ["matmul"] * 7,
    ("SameMapOfEach", "both"): ["matmul", "matmul", "rows"],
    # what becomes of the gates is one kernel a step
    ("GatedLoop", "both"): ["matmul", "matmul", "pointwise"] * 5,
    ("Mlp", "both"): ["matmul", "matmul"],
    ("FlattenedProduct", "eval"): ["matmul"],
    ("CountedMasks", "both"): ["matmul"],
    ("OtherResultInTraining", "train"): ["matmul"],
    ("OtherResultInTraining", "eval"): ["matmul"],
    ("PlainArguments", "both"): ["matmul"],
    ("MovingAverage", "eval"): ["matmul"],
    ("GroupsOfFeatures", "both"): ["matmul", "rows"],
    ("AxesOfOne", "both"): ["matmul", "rows"],
    ("TransposedMean", "both"): ["rows", "matmul", "rows"],
    ("CausalAttention", "both"): ["matmul", "matmul", "rows", "matmul"],
    ("BatchNormTrain", "train"): ["matmul", "pointwise", "matmul"],
    ("BatchNorm3d", "train"): ["rows", "columns", "pointwise"],
    ("GroupedConvolution", "train"): ["rows", "columns", "pointwise"],
    ("GatedSums", "both"): ["rows", "rows"],
    ("TwoInputsScaled", "both"): ["rows"],
    ("PooledByAttention", "both"): ["rows", "rows", "columns", "matmul", "rows"],
    ("OneMapOfTwoInputs", "both"): ["pointwise", "matmul"],
    ("MeanOfResidual", "both"): ["matmul", "columns", "columns", "matmul"],
    ("MeanOfJoined", "both"): ["rows", "matmul"],
    ("RowsInPieces", "both"): ["rows", "matmul"],  # the mean is a product by itself
}


def plan_of(name: str, mode: str):
    _, device = pipeline.target_for("cpu")
    with captured_once():
        found = derive(*drawn(name), device, Options(accuracy=False))
    return {d.mode.name: d.mode.plan for d in found}[mode]


@pytest.mark.parametrize(("name", "mode"), KERNELS)
def test_kernels(name, mode):
    groups = plan_of(name, mode).groups
    assert [g.family for g in groups] == KERNELS[name, mode]


@pytest.mark.parametrize(("name", "many"), [("ClassToken", 0), ("MeanOfAttention", 1)])
def test_rows_that_nothing_asks_for_are_not_multiplied(name, many):
    """Nothing but what attention itself reads of all tokens."""
    nodes = plan_of(name, "both").graph.nodes()
    products = [n for n in nodes if n.op == "linear" and not is_parametric(n)]
    batch = next(n for n in nodes if n.op == "input").shape[-3]
    assert sum(numel(n.shape[:-1]) != batch for n in products) == many
    assert len(products) == many + (3 if name == "ClassToken" else 1)


@pytest.mark.parametrize("name", ["BatchNormTrain", "BatchNorm3d", "GroupedConvolution"])
def test_what_follows_from_statistics_is_where_they_are(name):
    """Batch norm's factor, its running buffers and its counter."""
    plan = plan_of(name, "train")
    (group,) = [g for g in plan.groups if g.column_results]
    written = [o.value for o in plan.outputs if o.mutates is not None]
    assert len(written) == 3
    assert all(v in group.column_results or v == group.counters[0][0] for v in written)


@pytest.mark.parametrize("name", ["ResidualBlock", "TransposedChannels"])
def test_each_norm_keeps_its_own_buffers(name):
    """Nothing of the second one's is computed with the first one's."""
    plan = plan_of(name, "train")
    first, second = [g for g in plan.groups if g.column_results]
    names = [
        {n["name"].split(".")[0] for n in g.inputs if n.op == "state"} for g in (first, second)
    ]
    assert all(len(n) == 1 for n in names) and names[0] != names[1]


def test_reshapes_that_only_kernels_read_are_no_calls():
    """What is left is the convolution's result, which no kernel made, by its rows."""
    torch.manual_seed(0)
    module = CASES["GroupedConvolution"]()
    target, device = pipeline.target_for("cpu")
    options = Options(measure=False, accuracy=False)
    text = pipeline.run(module, module.inputs(), "", "Model", target, device, options).text
    assert text is not None
    train = text.partition("def _refold_train(")[2].partition("\n    def ")[0]
    assert "_refold_kernels." in train and train.count(".reshape(") == 1


class Norms(nn.Module):
    """Rows that are normalised, and rows whose sum is all that else is asked of them."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(8, 12), nn.LayerNorm(12)

    def forward(self, x):
        x = self.fc(x)
        return torch.softmax(self.norm(x), -1), self.fc(
            x.sum(-1, keepdim=True).expand(x.shape[0], 8)
        )


@pytest.mark.parametrize(("target", "reduced"), [("cuda:sm_90", 1), ("cpu", 2)])
def test_a_gpu_reduces_rows_where_they_are_read_again(target, reduced):
    """The mean is the rows' kernel's, which waits for it; the sum that no rows wait for is not."""
    torch.manual_seed(0)
    _, device = pipeline.target_for(target)
    (found,) = derive(Norms(), [torch.randn(6, 8)], device, Options(accuracy=False))
    product = found.mode.plan.groups[0]
    assert product.is_product
    assert len(product.reductions) == reduced


def test_a_product_stores_one_value():
    x = leaf("input", (5, 7), torch.float32, name="x", index=0)
    w = leaf("param", (3, 7), torch.float32, name="w")
    product = make("linear", x, w)
    tail = make("sin", product)
    dims = product.shape
    Group("one", "matmul", dims, (product, tail), (x, w), (tail,))
    with pytest.raises(AssertionError, match="stores one value"):
        Group("two", "matmul", dims, (product, tail), (x, w), (product, tail))


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


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (Sets, "sets the attribute 0.seen, which it has read before and which is no tensor"),
        (Appends, "changes the attribute 0.items"),
    ],
)
def test_an_attribute_that_forward_sets_is_seen_and_left_alone(cls, words):
    module = nn.Sequential(cls())
    plain = nn.Module.__setattr__
    _, device = pipeline.target_for("cpu")
    (found,) = derive(module, [torch.randn(2, 4)], device, Options(accuracy=False))
    assert found.mode.kept == f"forward {words}"
    assert (module[0].seen, module[0].items) == (0, [1])
    assert nn.Module.__setattr__ is plain


IMAGES = (*CONVOLUTIONS, "image_pool")


def left_of(name: str, training: bool) -> list[Node]:
    """The convolutions, and pooling of images, that a call still runs."""
    with captured_once():
        found = derive(*drawn(name), DeviceModel.of("cpu"), Options(accuracy=False))
    graph = found[0 if training or len(found) == 1 else 1].optimized.graph
    return [n for n in graph.nodes() if n.op in IMAGES and not is_parametric(n)]


NONE_LEFT = (
    *("TransposedMean", "ConvolutionMean", "ConvolutionSums", "StridedMean", "Signals"),
    *("DepthwisePooling",),
)


@pytest.mark.parametrize("name", NONE_LEFT)
def test_sums_over_all_places_run_no_convolution(name):
    assert left_of(name, training=True) == []


@pytest.mark.parametrize("name", ["VolumeMean", "TransposedVolume"])
def test_sums_behind_batch_norm_run_none_in_eval_mode(name):
    assert len(left_of(name, training=True)) == 1, "the batch's own variance needs all of it"
    assert left_of(name, training=False) == []


def test_sums_of_channels_run_a_convolution_of_one():
    assert [n.shape[-3] for n in left_of("MeanOfChannels", training=True)] == [1, 1]


def test_sums_of_channels_in_groups_are_one_in_one_group():
    line, volume, rest = left_of("GroupsOfChannels", training=True)
    assert (line.shape[-2], line["groups"], volume.shape[-4], volume["groups"]) == (1, 1, 1, 1)
    assert rest["groups"] == 3


def test_what_stands_before_a_convolution_is_a_part_of_it():
    """A factor is in the weight. A shift of an input stays, since it may nearly cancel it."""
    first, padded, transposed = left_of("NormThenConvolution", training=False)
    assert first.inputs[0].op == "add"
    for node in (padded, transposed):
        assert node.inputs[0].op == "tanh"
        assert node.inputs[1].inputs


@pytest.mark.parametrize("name", ["ResidualBlock", "TransposedChannels", "GroupedConvolution"])
def test_batch_norm_in_eval_mode_is_a_part_of_the_convolution(name):
    """Its factor is in the weight, its shift in the bias."""
    train, evaluation = (left_of(name, training)[0] for training in (True, False))
    assert not any(i.inputs for i in train.inputs[1:]), "what follows is the batch's own"
    assert all(i.inputs for i in evaluation.inputs[1:])


def test_sums_along_some_places_leave_convolutions_along_the_others():
    made = [(n.op, n["strides"], n["groups"]) for n in left_of("SumsAlongSomePlaces", True)]
    assert sorted(made) == [("conv", (1,), 2), ("conv", (2,), 2), ("conv_transpose", (1, 1), 1)]


def test_a_convolution_takes_in_the_pools_behind_it():
    (both,) = left_of("PooledConvolution", training=False)
    assert both.op == "conv" and both["strides"] == (8, 8) and both.inputs[1].shape[-2:] == (10, 10)
    ops = [n.op for n in left_of("PooledConvolution", training=True)]
    assert ops == ["conv", "image_pool"], "batch norm's statistics are those of the first pool"


def test_pooled_upsampling_is_a_convolution_where_the_image_lies():
    volume, line = left_of("PooledUpsampling", training=True)
    assert (volume.op, volume["strides"], volume["groups"]) == ("conv", (1, 1, 1), 2)
    assert volume.inputs[1].shape[-3:] == (2, 2, 2)
    assert (line.op, line["strides"]) == ("conv", (8,))


@pytest.mark.parametrize(
    ("target", "part", "size", "op"),
    [
        ("cpu", nn.ConvTranspose2d(4, 6, 3, padding=1), (9, 8), "conv"),
        ("cpu", nn.ConvTranspose2d(4, 6, (3, 5), padding=(2, 4), groups=2), (9, 8), "conv"),
        ("cpu", nn.ConvTranspose1d(4, 6, 3, padding=2, dilation=2), (40,), "conv"),
        # with no padding the result is much larger, and so is the work of a convolution
        ("cpu", nn.ConvTranspose3d(4, 6, 3), (4, 4, 4), "conv_transpose"),
        ("cpu", nn.ConvTranspose2d(4, 6, 3, stride=2), (9, 8), "conv_transpose"),
        # of images the library's one may be more accurate there
        ("cuda:sm_90", nn.ConvTranspose2d(64, 96, 3, padding=1), (9, 8), "conv_transpose"),
        # of volumes it multiplies for each place of the result, too
        ("cuda:sm_90", nn.ConvTranspose3d(64, 96, 3), (16, 16, 16), "conv"),
        # of few places in fp32
        ("cuda:sm_90", nn.ConvTranspose3d(64, 96, 3), (8, 8, 8), "conv_transpose"),
        # nobody timed it there
        ("cuda:sm_80", nn.ConvTranspose3d(64, 96, 3), (8, 8, 8), "conv_transpose"),
    ],
)
def test_a_transposed_convolution_by_steps_of_one_is_a_convolution(target, part, size, op) -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(part, nn.Tanh()).eval(), torch.randn(2, part.in_channels, *size)
    _, device = pipeline.target_for(target)
    (derived, *_) = derive(module, [x], device, Options(accuracy=False))
    assert [n.op for n in derived.optimized.graph.nodes() if n.op in CONVOLUTIONS] == [op]


class Normed(nn.Module):
    """Per channel, per image, whole; a group norm whose groups have several channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(3, 6)

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor):
        return torch.relu(self.norm(x)), x * y + z, (x + z) * 2.0

    def inputs(self) -> list[torch.Tensor]:
        return [torch.randn(4, 6, 5, 7), torch.randn(4, 6, 1, 1), torch.randn(4, 6, 5, 7)]


def test_a_group_norm_stores_nothing_as_large_between() -> None:
    """And its last pass, pointwise, takes each channel as one row."""
    module = Normed()
    _, device = pipeline.target_for("cpu")
    derived = derive(module, module.inputs(), device, Options(accuracy=False))
    (plan,) = {id(d.mode.plan): d.mode.plan for d in derived}.values()
    x = next(n for n in plan.graph.nodes() if n.op == "input")
    large = [o for g in plan.groups for o in g.outputs if numel(o.shape) == numel(x.shape)]
    assert len(large) == 3
    batch = x.shape[-4]
    spaces = [Body(g).dims for g in plan.groups if g.outputs[0] in large]
    assert all(dims == (1, 1, batch, 6, x.shape[-2] * x.shape[-1]) for dims in spaces)
