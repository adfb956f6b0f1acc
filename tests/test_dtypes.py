"""Models of float16, bfloat16 and float64 on the CPU, and of several dtypes at once."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import refold
from agree import check_close, double
from beforehand import beforehand
from refold import introspect, pipeline
from refold.derive import Options
from test_models import compiled, emitted, written
from zoo import CASES

DTYPES = (torch.float16, torch.bfloat16, torch.float64)
# between them every template, each with values of all shapes; statistics; calls between kernels
NAMES = (
    *("Mlp", "BatchNormTrain", "GroupAndInstanceNorm", "Reductions", "MaskAndWhere", "PoolChain"),
    *("SumChain", "BiasFreeMatvec", "Attention", "RmsNormAndGlu", "Embedding", "WholeSum"),
)


def cast(tree, dtype):
    return pytree.tree_map(
        lambda v: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v, tree
    )


def same(module: nn.Module, fast: nn.Module, inputs, training: bool) -> None:
    """Outputs and buffers of a fast twin are those of a module, beside float64."""
    reference, oracle = copy.deepcopy(module), copy.deepcopy(module).double()
    twin = copy.deepcopy(fast)
    for m in (reference, oracle, twin):
        m.train(training)
    with torch.no_grad():
        assert introspect.fallback_reason(twin, inputs) is None
        eager, truth = reference(*inputs), oracle(*double(inputs))
        check_close(twin(*inputs), eager, truth)
    for k, v in reference.state_dict().items():
        one = 2 * torch.finfo(v.dtype).eps if v.is_floating_point() else 0.0
        torch.testing.assert_close(twin.state_dict()[k], v, rtol=max(one, 1e-14), atol=one)


@pytest.fixture(scope="module")
def built(request):
    def write(name, dtype):
        torch.manual_seed(0)
        module = CASES[name]().to(dtype)
        return written(module, cast(module.inputs(), dtype))

    return beforehand(request, "test_model_computes_the_same", write, compiled)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_model_computes_the_same(built, name, dtype):
    module, fast = built[dtype, name]()
    for training in (True, False):
        for seed in (1, 2):
            torch.manual_seed(seed)
            same(module, fast, cast(module.inputs(), dtype), training)


class WideInside(nn.Module):
    """Scores in 16 bits, their softmax and norm in float32, the result in 16 bits again."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(40, 60)
        self.norm = nn.LayerNorm(60, dtype=torch.float32)

    def forward(self, x):
        y = self.fc(x)
        return self.norm(y.to(self.norm.weight.dtype)).to(y.dtype) + y, y.float().softmax(-1)

    def inputs(self):
        return [torch.randn(30, 40)]


class NarrowParameters(nn.Module):
    """Weights of 16 bits that are widened for inputs of float32."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(50, 40))

    def forward(self, x):
        return nn.functional.linear(x.float(), self.w.float()).relu().sum(-1)

    def inputs(self):
        return [torch.randn(30, 40)]


class RoundedOnPurpose(nn.Module):
    """Rounding that the model itself asks for is kept, and so are comparisons of rounded values."""

    def forward(self, x):
        wide = x.float()
        coarse = wide.bfloat16().float()
        top = x * 1.5 == (x * 1.5).amax(-1, keepdim=True)
        return (wide - coarse).abs().sum(-1), top, torch.where(top, 1.0, x)

    def inputs(self):
        return [torch.randn(30, 40)]


@pytest.mark.parametrize(
    ("model", "dtype"),
    [(m, d) for m in (WideInside, RoundedOnPurpose) for d in DTYPES]
    + [(NarrowParameters, d) for d in DTYPES[:2]],  # in float64 all of it would stay PyTorch's
)
def test_several_dtypes_in_one_model(model, dtype):
    torch.manual_seed(0)
    module = model()
    for name, part in module.named_children():
        if name != "norm":
            part.to(dtype)
    for p in module.parameters(recurse=False):
        p.data = p.data.to(dtype)
    inputs = cast(module.inputs(), dtype)
    fast, _ = emitted(module, inputs)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, inputs) is None
        got, eager = fast(*inputs), module(*inputs)
        if dtype == torch.float64:  # what is computed in float32 inside bounds all of it
            torch.testing.assert_close(got, eager, rtol=1e-6, atol=1e-6)
        else:  # .float() narrows the oracle, too: it is float32's there, near enough
            check_close(got, eager, copy.deepcopy(module).double()(*double(inputs)))


class Nearly(nn.Module):
    """What is added is less than half a unit in the last place of 16 bits."""

    def forward(self, x):
        return torch.where(x + 1e-5 == x, 1.0, x), x * 1.0001 > x

    def inputs(self):
        return [1 + torch.rand(30, 40)]


def test_values_are_rounded_before_they_are_compared():
    module, inputs = Nearly(), cast(Nearly().inputs(), torch.float16)
    fast, _ = emitted(module, inputs)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, inputs) is None
        (chosen, more), (expected, known) = fast(*inputs), module(*inputs)
        assert (expected == 1).all() and not known.any()
        assert torch.equal(chosen, expected) and torch.equal(more, known)


def test_the_mean_of_equal_values_is_theirs():
    """Behind batch norm every other number would be blown up by 1 / sqrt(eps)."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(96, 64), nn.BatchNorm1d(64, eps=1e-12)).half()
    x = torch.randn(1, 96).half().expand(50, 96).contiguous()
    fast, _ = emitted(module, [torch.randn(50, 96).half()])
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        assert fast(x).abs().max() <= 1e-2


def test_squares_do_not_overflow_where_pytorchs_do_not():
    module = CASES["RmsNormAndGlu"]().half()
    x = torch.full((9, 32), 3e4).half()
    fast, _ = emitted(module, [torch.randn(9, 32).half()])
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        assert module(x).isfinite().all()
        torch.testing.assert_close(fast(x), module(x), rtol=3e-3, atol=3e-3)


def test_the_variance_of_huge_columns_is_theirs():
    """The square of a mean of 1e20 is infinite in float32, the variance is not."""

    class Columns(nn.Module):
        def forward(self, x):
            return (2 * x).var(0) * 0.5

    torch.manual_seed(0)
    module, x = Columns(), 1e20 * (1 + 1e-4 * torch.randn(600, 64))
    fast, _ = emitted(module, [torch.randn(600, 64)])
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        assert module(x).isfinite().all()
        # what 1e20 rounds off in float32 is seen beside a deviation of 1e16
        torch.testing.assert_close(fast(x), module(x), rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("dtype", (torch.float16, torch.float64), ids=str)
def test_another_dtype_than_captured_takes_the_original_and_says_why(dtype):
    module = CASES["SumChain"]()
    fast, _ = emitted(module, module.inputs())
    module, fast = module.to(dtype), fast.to(dtype)
    x = module.inputs()[0].to(dtype)
    with torch.no_grad():
        assert torch.equal(fast(x), module(x))
        assert f"is {dtype} on cpu" in str(refold.status(fast).reason)


def test_autocast_is_pytorchs():
    module = CASES["SumChain"]()
    x = module.inputs()[0]
    fast, _ = emitted(module, [x])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fast(x), module(x))
        assert "autocast" in str(refold.status(fast).reason)


def test_float32_files_hold_nothing_of_other_dtypes():
    module = CASES["BatchNormTrain"]()
    for target in ("cpu", "cuda:sm_90"):
        back, device = pipeline.target_for(target, "ieee")
        options = Options(measure=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = pipeline.run(module, module.inputs(), "#", "x", back, device, options)
        assert result.text is not None
        for word in ("bfloat16", "c10::Half", "RF_NARROW", "_refold_hi_lo", "RF_REAL double"):
            assert word not in result.text.partition("import warnings")[2], (target, word)


class Masked(nn.Module):
    """A mask as every kind of operand."""

    def forward(self, x, mask):
        y = torch.where(mask, x * 2.0, -1.0) * mask[:, :1]
        return y.masked_fill(mask[0], 0.5), (x * mask).sum(0)


def test_any_byte_of_a_mask_but_zero_is_true():
    module, x = Masked(), torch.randn(9, 37)
    mask = torch.randint(0, 5, (9, 37), dtype=torch.uint8).view(torch.bool)
    fast, _ = emitted(module, [x, mask])
    plain = mask.view(torch.uint8) != 0
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x, mask]) is None
        for got, wanted in zip(fast(x, mask), module(x, plain), strict=True):
            torch.testing.assert_close(got, wanted)
