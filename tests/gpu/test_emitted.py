"""Emitted modules on a GPU: every model of the zoo against float64, and being a good citizen of
streams, CUDA graphs and updates. The kernels are compiled beforehand, side by side."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from agree import check_close, check_modes, double
from refold import introspect, pipeline
from refold.derive import Options
from refold.emit.load import load_text
from zoo import CASES

pytestmark = pytest.mark.gpu
TARGETS = ("cuda:sm_90", "cuda:sm_80")


def to_gpu(tree: Any) -> Any:
    return torch.utils._pytree.tree_map(
        lambda v: v.cuda() if isinstance(v, torch.Tensor) else v, tree
    )


def emitted(module: nn.Module, inputs: list[Any], target: str, float32: str = "ieee") -> str:
    """The text for a module; its class is bound by whoever loads it."""
    back, device = pipeline.target_for(target, float32)
    result = pipeline.run(
        module,
        inputs,
        "# Model is bound by the test.",
        type(module).__name__,
        back,
        device,
        Options(measure=False),
    )
    assert result.text is not None, result.reasons
    assert not result.reasons
    return result.text


class Chain(nn.Module):
    """Product, batch norm, softmax: every template, folded and packed parameters, buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(96, 160)
        self.bn = nn.BatchNorm1d(160)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.bn(self.fc(x) * 2.0), dim=1)

    def inputs(self) -> list[torch.Tensor]:
        return [torch.randn(200, 96)]


# left out: it makes tensors on the CPU in forward, which cannot meet a model on the GPU
NAMES = [name for name in CASES if name != "TensorsOfItsOwn"]
# cuDNN keeps more digits of the mean of a column of data far from zero than fp32 holds
KEPT = {"BatchNorm3d": "less accurate than PyTorch's"}
MODELS: dict[str, type[nn.Module]] = {**{n: CASES[n] for n in NAMES}, "Chain": Chain}


def on_gpu(cls: type[nn.Module]) -> nn.Module:
    module = cls().cuda()
    if hasattr(module, "offset"):  # a plain attribute, which no module moves
        module.offset = module.offset.cuda()
    return module


Pair = tuple[nn.Module, nn.Module]


class Pairs:
    """For each key: the module on the GPU and its fast twin, or what went wrong.

    All are made beforehand, side by side; where tests themselves run side by side (pytest-xdist),
    each when it is asked for. text: the module and what is emitted for it.
    """

    def __init__(self, text: Callable[..., tuple[nn.Module, str]], keys: Iterable[Any]) -> None:
        self.text = text
        self.made: dict[Any, Pair | Exception] = {}
        if "PYTEST_XDIST_WORKER" not in os.environ:
            texts = {key: self._text(key) for key in keys}
            with ThreadPoolExecutor(12) as pool:
                found = pool.map(self._load, texts.values())
                self.made = dict(zip(texts, found, strict=True))

    def _text(self, key: Any) -> tuple[nn.Module, str] | Exception:
        torch.manual_seed(0)
        try:
            return self.text(*key)
        except Exception as error:
            return error

    def _load(self, text: tuple[nn.Module, str] | Exception) -> Pair | Exception:
        if isinstance(text, Exception):
            return text
        module, source = text
        namespace = load_text(source, {"Model": type(module)})
        return module, pipeline.adopt(namespace.ModelNew, module)

    def __getitem__(self, key: Any) -> Pair:
        if key not in self.made:
            self.made[key] = self._load(self._text(key))
        found = self.made[key]
        if isinstance(found, Exception):
            raise found
        return copy.deepcopy(found)


def model_text(name: str, target: str) -> tuple[nn.Module, str]:
    module = on_gpu(MODELS[name])
    return module, emitted(module, to_gpu(module.inputs()), target)


@pytest.fixture(scope="session")
def built() -> Pairs:
    return Pairs(model_text, itertools.product(MODELS, TARGETS))


@pytest.mark.parametrize("target", TARGETS)
def test_each_number_of_rows_has_a_way(target):
    """Rows that take the plain product, tiles that several blocks share, and whole tiles."""
    module = nn.Sequential(nn.Linear(4096, 4096)).cuda()
    text = emitted(module, [torch.randn(4096, 4096, device="cuda")], target)
    namespace = load_text(text, {"Model": nn.Sequential})
    fast, oracle = pipeline.adopt(namespace.ModelNew, module), copy.deepcopy(module).double()
    for rows in (16, 17, 300, 512, 513, 1024, 4096):
        x = torch.randn(rows, 4096, device="cuda")
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            check_close(fast(x), module(x), oracle(x.double()))


class Heads(nn.Module):
    """Two products of one x: one has few columns and takes x as it is, one splits it."""

    def __init__(self) -> None:
        super().__init__()
        self.few, self.many = nn.Linear(1024, 128), nn.Linear(1024, 2048)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.few(x).sigmoid(), self.many(x).relu()


def test_few_columns_take_any_x():
    """Rows that start anywhere, that lie apart, in three dimensions, and few of them."""
    module = Heads().cuda()
    x = torch.randn(64, 256, 1024, device="cuda")
    text = emitted(module, [x], "cuda:sm_90")
    assert "Schedule<IeeeRS, Tall," in text
    assert "Schedule<Ieee, Tall," in text
    namespace = load_text(text, {"Model": Heads})
    fast, oracle = pipeline.adopt(namespace.ModelNew, module), copy.deepcopy(module).double()
    shifted = torch.randn(3 * 300 * 1024 + 1, device="cuda")[1:].view(3, 300, 1024)
    apart = torch.randn(40, 1024, 50, device="cuda").mT
    for given in (x, shifted, apart, x[:2, :7], x[:2, :9]):  # 7 rows twice take the plain product
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [given]) is None
            check_close(fast(given), module(given), oracle(given.double()))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_model_computes_the_same(built, name, target):
    if name in KEPT:
        with pytest.raises(AssertionError, match=KEPT[name]):
            built[name, target]
        return
    module, fast = built[name, target]
    check_modes(fast, module, to_gpu)


def cast(tree: Any, dtype: torch.dtype) -> Any:
    return torch.utils._pytree.tree_map(
        lambda v: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v, tree
    )


class Large(nn.Module):
    """Products on tensor cores: one with the weight as it is, one with a folded weight."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(520, 384), nn.Linear(384, 512)
        self.bn = nn.BatchNorm1d(384)
        self.pool = nn.AvgPool1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn(torch.relu(self.fc(x)))
        return self.pool(self.head(x).unsqueeze(1)).squeeze(1).sigmoid().amax(1)

    def inputs(self) -> list[torch.Tensor]:
        return [torch.randn(700, 520)]


# between them every template, tensor-core and plain products, statistics, calls between kernels
BY_DTYPE: dict[str, type[nn.Module]] = {
    **{n: CASES[n] for n in ("Mlp", "GroupAndInstanceNorm", "Reductions", "Residual")},
    "Chain": Chain,
    "Large": Large,
}
DTYPES = (torch.float16, torch.bfloat16, torch.float64)


BY_DTYPE_AND_TARGET = [(n, TARGETS[0]) for n in BY_DTYPE] + [
    ("Chain", TARGETS[1]),
    ("Large", TARGETS[1]),
]


def dtype_text(name: str, target: str, dtype: torch.dtype) -> tuple[nn.Module, str]:
    module = BY_DTYPE[name]().to(dtype).cuda()
    return module, emitted(module, to_gpu(cast(module.inputs(), dtype)), target)


@pytest.fixture(scope="session")
def built_by_dtype() -> Pairs:
    return Pairs(dtype_text, [(*key, d) for key in BY_DTYPE_AND_TARGET for d in DTYPES])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "target"), BY_DTYPE_AND_TARGET)
def test_other_dtypes(built_by_dtype, name, target, dtype):
    module, fast = built_by_dtype[name, target, dtype]
    for training in (True, False):
        for seed in (1, 2):
            torch.manual_seed(seed)
            inputs = to_gpu(cast(module.inputs(), dtype))
            reference, oracle = copy.deepcopy(module), copy.deepcopy(module).double()
            twin = copy.deepcopy(fast)
            for m in (reference, oracle, twin):
                m.train(training)
            with torch.no_grad():
                assert introspect.fallback_reason(twin, inputs) is None
                check_close(twin(*inputs), reference(*inputs), oracle(*double(inputs)))
            for k, v in reference.state_dict().items():
                one = 2 * torch.finfo(v.dtype).eps if v.is_floating_point() else 0.0
                torch.testing.assert_close(
                    twin.state_dict()[k], v, rtol=max(one, 1e-13), atol=max(one, 1e-13)
                )


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_16_bits_at_any_batch_size_and_address(built_by_dtype, dtype):
    module, fast = built_by_dtype["Large", TARGETS[0], dtype]
    oracle = copy.deepcopy(module).double().eval()
    module.eval(), fast.eval()
    with torch.no_grad():
        for rows in (2, 3, 16, 17, 129, 1000, 5000):
            for shift in (0, 1, 4):
                flat = torch.randn(rows * 520 + shift, device="cuda").to(dtype)
                x = flat[shift:].view(rows, 520)
                assert introspect.fallback_reason(fast, [x]) is None
                check_close(fast(x), module(x), oracle(x.double()))


def test_a_folded_weight_that_16_bits_cannot_hold_takes_the_original(built_by_dtype):
    module, fast = built_by_dtype["Large", TARGETS[0], torch.float16]
    module.eval(), fast.eval()
    x = torch.randn(700, 520, device="cuda").half()
    with torch.no_grad():
        weight = torch.randn_like(module.head.weight) * 3e-7  # few units of fp16's smallest
        for m in (module, fast):
            m.head.weight.copy_(weight)
        assert "not held by two parts" in str(introspect.fallback_reason(fast, [x]))
        assert torch.equal(fast(x), module(x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("training", [True, False])
def test_a_captured_graph_computes_the_same_and_follows_updates(built, target, training):
    module, fast = built["Chain", target]
    for m in (module, fast):
        m.train(training)
    x = torch.randn(200, 96, device="cuda")
    with torch.no_grad():
        fast(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = fast(x)
        for seed in range(3):
            torch.manual_seed(seed)
            x.normal_()
            graph.replay()
            torch.testing.assert_close(y, module(x), rtol=1e-5, atol=1e-6)
        for m in (module, fast):
            m.fc.weight.copy_(torch.full_like(m.fc.weight, 0.01))
        fast(x)  # folds anew, in place: the graph reads the same memory
        graph.replay()
        torch.testing.assert_close(y, module(x), rtol=1e-5, atol=1e-6)


def test_parameters_that_changed_while_capturing_take_the_original(built):
    module, fast = built["Chain", "cuda:sm_90"]
    for m in (module, fast):
        m.eval()
    x = torch.randn(200, 96, device="cuda")
    with torch.no_grad():
        module(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            assert "being captured" in str(introspect.fallback_reason(fast, [x]))
            y = fast(x)
        graph.replay()
        torch.testing.assert_close(y, module(x), rtol=1e-5, atol=1e-6)


def test_streams_do_not_wait_for_each_other_in_vain_nor_too_little(built):
    """Folds of one stream are read by another; kernels of several streams share no memory."""
    module, fast = built["Chain", "cuda:sm_90"]
    module.eval(), fast.eval()
    xs = [torch.randn(200 + 64 * i, 96, device="cuda") for i in range(6)]
    with torch.no_grad():
        expected = [module(x) for x in xs]
        for _ in range(5):
            fast.refold_refresh()
            torch.cuda.synchronize()
            streams = [torch.cuda.Stream() for _ in xs]
            got = []
            for x, s in zip(xs, streams, strict=True):
                with torch.cuda.stream(s):
                    got.append([fast(x) for _ in range(20)])
            torch.cuda.synchronize()
            for outs, e in zip(got, expected, strict=True):
                for o in outs:
                    assert torch.equal(o, outs[0])
                torch.testing.assert_close(outs[0], e, rtol=1e-5, atol=1e-6)


def test_the_same_bits_every_time(built):
    _, fast = built["Chain", "cuda:sm_90"]
    fast.train()
    x = torch.randn(1000, 96, device="cuda")
    with torch.no_grad():
        first = fast(x)
        assert all(torch.equal(fast(x), first) for _ in range(200))


def test_any_batch_size(built):
    module, fast = built["Chain", "cuda:sm_90"]
    module.eval(), fast.eval()
    with torch.no_grad():
        for rows in (0, 1, 2, 3, 15, 16, 17, 64, 129, 1000, 5000):
            x = torch.randn(rows, 96, device="cuda")
            torch.testing.assert_close(fast(x), module(x), rtol=1e-5, atol=1e-6)
            pairs = torch.randn(96, rows, device="cuda").t()
            torch.testing.assert_close(fast(pairs), module(pairs), rtol=1e-5, atol=1e-6)


def test_a_model_on_the_cpu_takes_the_original(built):
    _, fast = built["Chain", "cuda:sm_90"]
    fast.cpu().eval()
    x = torch.randn(4, 96)
    with torch.no_grad():
        fast(x)
        assert "not torch.float32 on cuda" in str(introspect.fallback_reason(fast, [x]))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_device_than_the_current_one(built):
    module, fast = built["Chain", "cuda:sm_90"]
    module.to("cuda:1").eval(), fast.to("cuda:1").eval()
    x = torch.randn(300, 96, device="cuda:1")
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        torch.testing.assert_close(fast(x), module(x), rtol=1e-5, atol=1e-6)
        assert torch.cuda.current_device() == 0


def test_tf32_is_used_only_while_it_is_allowed(built):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(512, 256), nn.ReLU()).cuda()
    x = torch.randn(256, 512, device="cuda")
    text = emitted(module, [x], "cuda:sm_90", "tf32")
    fast = pipeline.adopt(load_text(text, {"Model": type(module)}).ModelNew, module)
    truth = copy.deepcopy(module).double()(x.double())
    before = torch.get_float32_matmul_precision()
    try:
        with torch.no_grad():
            torch.set_float32_matmul_precision("highest")
            assert "do not allow TF32" in str(introspect.fallback_reason(fast, [x]))
            torch.set_float32_matmul_precision("high")
            assert introspect.fallback_reason(fast, [x]) is None
            error = (fast(x).double() - truth).abs().max()
            assert error <= 1.5 * (module(x).double() - truth).abs().max()
    finally:
        torch.set_float32_matmul_precision(before)
