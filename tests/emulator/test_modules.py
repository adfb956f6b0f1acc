"""Emitted modules of the CUDA target, kernels and all, on the emulator against float64."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from agree import check_close, check_modes
from beforehand import beforehand
from refold import introspect, pipeline
from refold.devices import DEVICES, DeviceModel
from refold.pipeline import Result
from refold.plan import Group
from refold.planner import plan_price
from test_models import written
from tests.emulator.module import emulated
from tests.gpu.test_emitted import Chain, Large
from zoo import CASES

# most models of the zoo are too small for tensor cores
MODELS: dict[str, type[nn.Module]] = {**CASES, "Chain": Chain, "Large": Large}
# between them every template, statistics, masks, folded parameters, calls between kernels
CHOSEN = (
    *("BatchNormTrain", "BooleanMasks", "CausalAttention", "Chain", "GroupAndInstanceNorm"),
    *(
        "LongLines",
        "LongRows",
        "MaskAndWhere",
        "NormThenConvolution",
        "PooledByAttention",
        "Residual",
    ),
    *("ReducedInOtherShapes", "TwoInputsScaled"),
)
ON_AMPERE = ("Chain", "Mlp")
# these take minutes: both have large batches or sides
TOO_LARGE = ("OtherWayRound", "Scores")
_ALL = [name for name in MODELS if name not in TOO_LARGE]
CASES_OF = [
    *((name, "cuda:sm_90") for name in (_ALL if "REFOLD_EMULATOR" in os.environ else CHOSEN)),
    *((name, "cuda:sm_80") for name in (_ALL if "REFOLD_EMULATOR" in os.environ else ON_AMPERE)),
]


def built_for_emulator(pair: tuple[nn.Module, Result]) -> tuple[nn.Module, nn.Module]:
    """A module and its fast twin, compiled for the emulator."""
    module, result = pair
    assert result.text is not None
    return module, pipeline.bind_for_class(emulated(result.text), module)


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest) -> Mapping[tuple[Any, ...], Any]:
    def write(name: str, target: str) -> tuple[nn.Module, Result]:
        torch.manual_seed(0)
        module = MODELS[name]()
        return written(module, module.inputs(), target)

    def build(pair: tuple[nn.Module, Result]) -> tuple[nn.Module, nn.Module, Result]:
        return *built_for_emulator(pair), pair[1]

    return beforehand(request, "test_model_computes_the_same", write, build)


@pytest.mark.parametrize(("name", "target"), CASES_OF)
def test_model_computes_the_same(built: Any, name: str, target: str) -> None:
    module, fast, result = built[(name, target)]()
    check_modes(fast, module)
    check_kernels(fast, module.inputs(), result, target)


def check_kernels(fast: nn.Module, inputs: list[Any], result: Result, target: str) -> None:
    """The price of a plan counts the kernels that a call starts on a GPU, PyTorch's own aside."""
    (namespace, _), *_ = introspect.programs(fast)
    launches = namespace["_refold_kernels"].launches
    for mode in result.modes:
        if mode.plan is None:
            continue
        fast.train(mode.name == "train")
        price = plan_price(mode.plan, DeviceModel.of(target))
        steps = zip(mode.plan.steps, price.steps, strict=True)
        expected = sum(p.kernels for step, p in steps if isinstance(step, Group))
        expected += sum(p.kernels for what, p in price.beside if what == "packing a value")
        with torch.no_grad():
            fast(*inputs)  # folds and packs parameters
            before = launches()
            fast(*inputs)
        assert launches() - before == expected, mode.name


def test_tf32_where_it_is_allowed() -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(256, 512), nn.ReLU()), torch.randn(512, 256)
    _, fast = built_for_emulator(written(module, [x], "cuda:sm_90", "tf32"))
    flags, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_tf32
    try:
        flags.allow_tf32 = False
        assert "do not allow TF32" in (introspect.fallback_reason(fast, [x]) or "")
        flags.allow_tf32 = True
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            got, wanted = fast(x), copy.deepcopy(module).double()(x.double())
    finally:
        flags.allow_tf32 = before
    error = float((got - wanted).norm() / wanted.norm())
    assert 5e-5 < error < 6e-4  # ten bits of every operand


class Weighted(nn.Module):
    """A product of what a softmax gave: its rows may come as they are, at depths that allow it."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.mT * 0.2, -1) @ v


def test_threads_of_one_stream_keep_their_workspace_apart() -> None:
    """Each call splits its input into the stream's workspace, then multiplies what lies there."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(256, 512), nn.ReLU())
    _, result = written(module, [torch.randn(512, 256)], "cuda:sm_90")
    assert "rf_work = _refold_workspace(rf_size" in (result.text or "")
    _, fast = built_for_emulator((module, result))
    xs = [torch.randn(160 + 64 * i, 256) for i in range(3)]
    with torch.no_grad():
        wanted = [module(x) for x in xs]
        fast(xs[0])

        def call(i: int) -> list[torch.Tensor]:
            with torch.no_grad():
                return [fast(xs[i]) for _ in range(6)]

        with ThreadPoolExecutor(len(xs)) as pool:
            for outputs, expected in zip(pool.map(call, range(len(xs))), wanted, strict=True):
                for output in outputs:
                    torch.testing.assert_close(output, expected)


def test_rows_of_a_batch_are_split_on_their_way_where_they_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hopper = replace(DEVICES["cuda:sm_90"], batches=lambda *_: True)  # small ones, too
    monkeypatch.setattr(pipeline, "DEVICES", {**DEVICES, "cuda:sm_90": hopper})
    torch.manual_seed(0)
    shapes = (3, 8000, 36), (3, 96, 36), (3, 96, 40)
    module, result = written(Weighted(), [torch.randn(s) for s in shapes], "cuda:sm_90")
    assert "UnalignedDepth<Schedule<Ieee" in (result.text or "")
    module, fast = built_for_emulator((module, result))
    for keys in (96, 99, 4):
        inputs = [torch.randn(2, 270, 36), torch.randn(2, keys, 36), torch.randn(2, keys, 50)]
        assert introspect.fallback_reason(fast, inputs) is None
        with torch.no_grad():
            exact = module(*(x.double() for x in inputs))
            check_close(fast(*inputs), module(*inputs), exact)


class Erf(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.erf(x) * 1.0, nn.functional.gelu(x)


def test_erf_is_accurate_to_a_unit_in_the_last_place() -> None:
    """Of what is small, of both sides of one, where the forms meet, and of what is not finite."""
    sizes = torch.cat([torch.logspace(-38, 38, 3001), torch.linspace(0, 6, 8001)])
    x = torch.cat([sizes, -sizes, torch.tensor([0.0, torch.inf, -torch.inf, torch.nan])])
    _, result = written(Erf().eval(), [x], "cuda:sm_90")
    erf, gelu = pipeline.bind_for_class(emulated(result.text), Erf())(x)
    truth = torch.erf(x.double())
    ulp = torch.nextafter(truth.float().abs(), torch.tensor(9.0)) - truth.float().abs()
    known = ~truth.isnan()
    error = ((erf.double() - truth).abs() / ulp.double())[known]
    assert error.max() <= 1.1 and torch.equal(erf.isnan(), ~known)
    near = known & (x.abs() < 30)
    torch.testing.assert_close(gelu[near].double(), nn.functional.gelu(x[near].double()))
