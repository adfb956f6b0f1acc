"""Values in 16 bits between a product and the kernel that normalises them, on a GPU; what they do
with small and large values, infinities and outliers is tested on the emulator."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from refold import introspect, pipeline
from refold.emit.load import load_text
from test_quantized import QUANTIZED, quantizing
from tests.emulator.test_quantized import DEPTH, MODELS, error
from tests.gpu.test_emitted import emitted

pytestmark = pytest.mark.gpu
Pairs = dict[str, tuple[nn.Module, nn.Module]]


@pytest.fixture(scope="module")
def built() -> Pairs:
    """Each module with its fast twin."""
    modules, texts = {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "DEVICES", quantizing(1))
        for name, (make, shape) in MODELS.items():
            torch.manual_seed(0)
            modules[name], x = make().cuda(), torch.randn(shape, device="cuda")
            texts[name] = emitted(modules[name], [x], "cuda:sm_90", "tf32")
            assert QUANTIZED in texts[name]

    def bound(name: str) -> nn.Module:
        loaded = load_text(texts[name], {"Model": type(modules[name])})
        return pipeline.adopt(loaded.ModelNew, modules[name])

    with ThreadPoolExecutor() as pool:
        return {
            n: (modules[n], fast) for n, fast in zip(texts, pool.map(bound, texts), strict=True)
        }


@pytest.fixture(autouse=True)
def tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rows", [17, 128, 300, 5001, 40000])
def test_as_exact_as_eager(built: Pairs, name: str, rows: int) -> None:
    torch.manual_seed(rows)
    module, fast = built[name]
    module, fast = copy.deepcopy(module), copy.deepcopy(fast)
    exact, eager = copy.deepcopy(module).double(), copy.deepcopy(module)
    x = torch.randn((rows, DEPTH) if name != "ByHand" else (3, rows // 3, DEPTH), device="cuda")
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        results = [f(y) for f, y in ((fast, x), (eager, x), (exact, x.double()))]
        states = [[b.clone() for b in f.buffers()] for f in (fast, exact)]
        again = fast(x)
    if name == "ByHand":
        results, again = [r[0] for r in results], again[0]
    got, e, truth = results
    assert error(got, truth) <= 1.1 * error(e, truth) + 1e-5
    assert torch.equal(again, got)
    assert all(error(a, b) < 2e-3 for a, b in zip(*states, strict=True))


def test_calls_in_a_row(built: Pairs) -> None:
    """Each tile's barriers are left as the next one, and the next call, finds them."""
    _, fast = built["ByHand"]
    x = torch.randn(40, 1000, DEPTH, device="cuda")
    x[:, 0] *= 1e4  # some tiles stay as they are
    with torch.no_grad():
        first = fast(x)
        for _ in range(2000):
            last = fast(x)
    assert all(torch.equal(a, b) for a, b in zip(first, last, strict=True))


def test_a_captured_graph(built: Pairs) -> None:
    _, fast = built["ByHand"]
    x = torch.randn(3, 500, DEPTH, device="cuda")
    with torch.no_grad():
        wanted = [t.clone() for t in fast(x)]
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            fast(x)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = fast(x)
        for t in result:
            t.zero_()
        graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(result, wanted, strict=True))
