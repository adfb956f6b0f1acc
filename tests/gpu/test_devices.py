"""Emitted modules on one of several GPUs, and called by several threads."""

from __future__ import annotations

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
import torch
from torch import nn

from refold import introspect, pipeline
from refold.emit.load import load_text

from .test_emitted import Chain, emitted

pytestmark = pytest.mark.gpu
several = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs")


@pytest.fixture(scope="module")
def made() -> tuple[nn.Module, ModuleType]:
    torch.manual_seed(0)
    module = Chain().cuda().eval()
    text = emitted(module, [x.cuda() for x in module.inputs()], "cuda:sm_90")
    return module, load_text(text, {"Model": Chain})


@pytest.fixture
def pair(made: tuple[nn.Module, ModuleType]) -> tuple[nn.Module, nn.Module]:
    module, namespace = made
    module = copy.deepcopy(module)
    return module, pipeline.adopt(namespace.ModelNew, module)


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


@several
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("current", [0, 1])
def test_the_inputs_device_is_used_whichever_is_current(pair, training, current):
    module, fast = (m.cuda(1).train(training) for m in pair)
    reference = copy.deepcopy(module)
    with torch.no_grad(), torch.cuda.device(current):
        for _ in range(3):
            x = torch.randn(200, 96, device="cuda:1")
            assert introspect.fallback_reason(fast, [x]) is None
            before = copy.deepcopy(fast.state_dict())
            got = fast(x)
            assert got.device == x.device
            reference.load_state_dict(before)
            close(got, reference(x))
            for name, value in reference.state_dict().items():
                torch.testing.assert_close(fast.state_dict()[name], value)
        assert torch.cuda.current_device() == current


@several
def test_a_module_that_moves_is_followed(pair):
    module, fast = pair
    with torch.no_grad():
        for place in ("cuda:0", "cuda:1", "cuda:0"):
            x = torch.randn(200, 96, device=place)
            module.to(place), fast.to(place)
            assert introspect.fallback_reason(fast, [x]) is None
            close(fast(x), module(x))


@several
def test_arguments_of_another_device_are_the_originals_error(pair):
    _, fast = pair
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast(torch.randn(200, 96, device="cuda:0"))
        with pytest.raises(RuntimeError, match="same device"):
            fast(torch.randn(200, 96, device="cuda:1"))


@several
def test_data_parallel(pair):
    module, fast = pair
    x = torch.randn(300, 96, device="cuda:0")
    with torch.no_grad():
        parallel = nn.DataParallel(fast, [0, 1])
        for _ in range(5):
            close(parallel(x), module(x))
            module.fc.weight.mul_(1.1)
            assert fast.fc.weight is module.fc.weight


@pytest.mark.parametrize("own_streams", [True, False])
def test_threads(pair, own_streams):
    """One module, called by threads, each with sizes and perhaps a stream of its own; then an
    update."""
    module, fast = pair

    def call(i: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        stream = torch.cuda.Stream() if own_streams else torch.cuda.default_stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            xs = [torch.randn(100 + 50 * i, 96, device="cuda") for _ in range(30)]
            found = [(x, fast(x)) for x in xs]
            torch.cuda.current_stream().synchronize()
            return found

    with torch.no_grad(), ThreadPoolExecutor(6) as pool:
        for _ in range(4):
            for results in pool.map(call, range(6)):
                for x, y in results:
                    close(y, module(x))
            module.fc.weight.mul_(1.1)
            torch.cuda.synchronize()
