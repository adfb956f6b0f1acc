"""What a GPU's costs choose, computed by PyTorch on the CPU.

Rewrites, and the text around kernels, that the CPU's costs would not lead to. Convolutions run as
PyTorch's on both.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from agree import check_close, double
from captures import captured_once, drawn
from refold import introspect, pipeline
from refold.derive import Options, derive
from refold.ir import hint
from refold.plan import ExternCall
from torch_target import TorchTarget
from zoo import CASES, convolutions, pools, values

SOURCES = (convolutions.__name__, pools.__name__, values.__name__)
MODELS = [n for n, case in CASES.items() if case.__module__ in SOURCES]


@pytest.mark.parametrize("name", MODELS)
def test_model_computes_the_same(name):
    module, inputs = drawn(name)
    _, device = pipeline.target_for("cuda:sm_90")
    options = Options(measure=False, accuracy=False)
    with captured_once():
        result = pipeline.run(
            module, inputs, "# Model is bound.", name, TorchTarget(), device, options
        )
    assert result.text is not None, result.reasons
    fast = pipeline.bind_for_class(result.text, copy.deepcopy(module))
    reference, oracle = copy.deepcopy(module), copy.deepcopy(module).double()
    for mode in result.modes:
        for m in (fast, reference, oracle):
            m.train(mode.name == "train")
        with torch.no_grad():
            assert mode.plan is None or introspect.fallback_reason(fast, inputs) is None
            check_close(fast(*inputs), reference(*inputs), oracle(*double(inputs)))


class Exponentials(nn.Module):
    """A product and the logarithm of its summed exponentials, in one form or another."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.linear = form, nn.Linear(96, 200)

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        y = self.linear(x) * 2.0
        if self.form == "alone":
            return torch.logsumexp(y, -1, keepdim=True).relu()
        if self.form == "with others":
            return y.logsumexp(-1) - y.amax(-1), y.sum(-1)
        if self.form == "of what is stored":
            return y, y.logsumexp(-1)
        if self.form == "beside a softmax":
            return y.logsumexp(-1), y.softmax(-1)
        if self.form == "subtracted":
            return y - y.logsumexp(-1, keepdim=True)
        assert self.form == "over two axes"
        return y.logsumexp((-2, -1))


@pytest.mark.parametrize(
    ("form", "kernels"),
    [
        *(("alone", 1), ("with others", 1), ("of what is stored", 1)),
        *(("beside a softmax", 2), ("subtracted", 2)),
    ],
)
def test_a_product_takes_exponentials_where_no_kernel_of_rows_follows(form, kernels):
    for dtype, count in ((torch.float32, kernels), (torch.bfloat16, 2)):
        module, x = Exponentials(form).to(dtype), torch.randn(70, 96, dtype=dtype)
        target, device = pipeline.target_for("cuda:sm_90", "ieee")
        result = pipeline.run(
            module,
            [x],
            "# Model is bound.",
            form,
            target,
            device,
            Options(measure=False, accuracy=False),
        )
        (plan,) = {id(m.plan): m.plan for m in result.modes}.values()
        assert plan is not None and len(plan.groups) == count, dtype


@pytest.mark.parametrize("form", ["alone", "with others", "beside a softmax", "over two axes"])
def test_exponentials_that_a_product_takes_are_right(form):
    """Also where a whole row is -inf, or an element inf."""
    module, x = Exponentials(form), torch.randn(3, 70, 96)
    _, device = pipeline.target_for("cuda:sm_90")
    result = pipeline.run(
        module,
        [x],
        "# Model is bound.",
        form,
        TorchTarget(),
        device,
        Options(measure=False, accuracy=False),
    )
    fast = pipeline.bind_for_class(result.text or "", copy.deepcopy(module))
    oracle = copy.deepcopy(module).double()
    x[0, 3], x[1, 5, 7] = 1e38, float("inf")
    with torch.no_grad():
        check_close(fast(x), module(x), oracle(x.double()))


def plan_of(name, target, float32="ieee"):
    back, device = pipeline.target_for(target, float32)
    options = Options(measure=False, accuracy=False)
    with captured_once():
        result = pipeline.run(*drawn(name), "# Model is bound.", name, back, device, options)
    (plan,) = {id(m.plan): m.plan for m in result.modes}.values()
    return plan, result.text


def products(plan):
    return [g for g in plan.groups if g.is_product] if plan else []


@pytest.mark.parametrize(
    ("name", "target", "float32", "sides"),
    [
        # (how many products a kernel makes, which of its sides lie the other way round)
        ("Scores", "cuda:sm_90", "ieee", [(24, (False, False))]),
        ("Scores", "cuda:sm_90", "tf32", []),
        ("Scores", "cpu", "ieee", []),
        ("OtherWayRound", "cuda:sm_80", "ieee", [(1, (True, True)), (3, (True, True))]),
        ("OtherWayRound", "cuda:sm_90", "tf32", [(1, (True, True))]),
        ("OtherWayRound", "cpu", "ieee", [(1, (False, False))]),
        ("OneSquare", "cuda:sm_90", "ieee", [(1, (False, False)), (1, (False, False))]),
    ],
)
def test_products_of_two_values(name, target, float32, sides):
    plan, _ = plan_of(name, target, float32)
    assert [(hint(g.batches), g.is_transposed) for g in products(plan)] == sides


def test_a_batch_is_stored_and_reduced_by_another_kernel():
    plan, text = plan_of("Scores", "cuda:sm_90")
    (product,) = products(plan)
    assert product.value.op == "add" and not product.reductions
    assert "kBatched = true" in text and "batch_of(w(" in text


def test_statistics_of_long_rows_are_taken_in_one_pass():
    _, text = plan_of("LongRows", "cuda:sm_90")
    for monoid in ("Softmax", "LogSumExpState", "RowMoments"):
        assert f"using Monoids = List<{monoid}>;" in text
    _, text = plan_of("LongRows", "cpu")
    assert (
        "using Monoids = List<Max, Sum>;" in text
        and "using Monoids = List<Sum, SumAndSquares>;" in text
    )


def test_a_model_in_memory_lends_the_next_one_no_sizes():
    """Both call their sizes s0 and s1, and kernels are chosen for the sizes of the example."""

    class Short(CASES["LongRows"]):
        def inputs(self):
            return [x[:, :-8100].contiguous() for x in super().inputs()]

    back, device = pipeline.target_for("cuda:sm_90")
    options = Options(measure=False, accuracy=False)
    module = Short()
    derived = derive(module, module.inputs(), device, options)
    _, text = plan_of("LongRows", "cuda:sm_90")
    assert derived and "using Monoids = List<RowMoments>;" in text
    emitted = pipeline.run(
        module, module.inputs(), "# Model is bound.", "Short", back, device, options
    )
    assert "using Monoids = List<RowMoments>;" not in (emitted.text or "")


def test_what_is_reduced_in_another_shape_is_not_written_before():
    plan, _ = plan_of("ReducedInOtherShapes", "cuda:sm_90")
    written = [n for g in plan.groups for n in g.outputs]
    assert not any(n.op == "square" for n in written)
    assert not any(isinstance(s, ExternCall) and s.node.op == "mean" for s in plan.steps)
