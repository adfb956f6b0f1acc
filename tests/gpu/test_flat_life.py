"""Convolutions of one long row of places in a program: a training loop, a CUDA graph, threads."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn

from refold import introspect
from test_flat import CLASS, flat
from test_strips import SM_90
from tests.gpu.test_convolutions import fast_of

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)


def images(scale: float = 1.0) -> torch.Tensor:
    return torch.randn(16, 64, 20, 21, device="cuda") * scale


@pytest.fixture
def pair() -> tuple[nn.Module, nn.Module]:
    """A network of two convolutions, and its fast twin, which has parameters of its own."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, 64, 5, padding=2))
    module = nn.Sequential(*layers).cuda().eval()
    fast = fast_of(module, [images()], flat("broad"), SM_90)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [images()]) is None
    return module, fast


def error(module: nn.Module, got: torch.Tensor, x: torch.Tensor) -> float:
    with torch.no_grad():
        truth = copy.deepcopy(module).double()(x.double())
        return float((got - truth).norm() / truth.norm())


def test_in_a_training_loop(pair: tuple[nn.Module, nn.Module]) -> None:
    """Each step is followed by what the new kernels compute."""
    _, fast = pair
    optimizer = torch.optim.AdamW(fast.parameters(), 1e-2, fused=True)
    for _ in range(10):
        x = images()
        optimizer.zero_grad()
        fast(x).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            assert error(fast, fast(x), x) < CLASS


def test_in_a_cuda_graph(pair: tuple[nn.Module, nn.Module]) -> None:
    """Replayed with images that need another scale, too."""
    module, fast = pair
    x = images()
    with torch.no_grad():
        for _ in range(3):
            fast(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = fast(x)
        for scale in (1.0, 1e-20, 1e20, 1.0):
            x.copy_(images(scale))
            graph.replay()
            assert error(module, made, x) < CLASS


def test_from_threads(pair: tuple[nn.Module, nn.Module]) -> None:
    """Each on a stream of its own."""
    module, fast = pair
    errors: list[float] = []

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            for i in range(20):
                x = images(10.0 ** (seed * i % 7))
                errors.append(error(module, fast(x), x))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(errors) == 80 and max(errors) < CLASS
