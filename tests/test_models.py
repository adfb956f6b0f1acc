"""Every model of the zoo, through capture, rewriting, plan and emission, against float64."""

from __future__ import annotations

import pytest
import torch

from agree import check_modes
from beforehand import beforehand
from captures import captured_once, drawn
from refold import introspect, pipeline
from refold.derive import Options
from refold.devices import DeviceModel
from refold.emit.load import load_text
from torch_target import TorchTarget
from zoo import CASES


def result_of(module, inputs, name="cpu", float32="ieee", convolutions=None):
    """What the pipeline makes of a module for a target, not yet compiled."""
    target, device = pipeline.target_for(name, float32, convolutions)
    result = pipeline.run(
        module,
        inputs,
        "# Model is bound by the test.",
        type(module).__name__,
        target,
        device,
        Options(measure=False, accuracy=name == "cpu"),
    )
    assert result.text is not None, result.reasons
    return result


def written(module, inputs, name="cpu", float32="ieee", convolutions=None):
    """A module and its `result_of`; no mode keeps the original."""
    result = result_of(module, inputs, name, float32, convolutions)
    assert not result.reasons
    return module, result


def compiled(pair):
    module, result = pair
    return module, pipeline.bind_for_class(result.text, module)


def emitted(module, inputs):
    _, result = written(module, inputs)
    return compiled((module, result))[1], result


@pytest.fixture(scope="module")
def built(request):
    def write(name):
        with captured_once():
            return written(*drawn(name))

    return beforehand(request, "test_model_computes_the_same", write, compiled)


@pytest.mark.parametrize("name", CASES)
def test_model_computes_the_same(built, name):
    module, fast = built[(name,)]()
    check_modes(fast, module)


@pytest.mark.parametrize("name", CASES)
def test_model_is_written_for_cuda(name):
    with captured_once():
        text = result_of(*drawn(name), "cuda:sm_90").text
    compile(text, name, "exec")
    assert "cuda_sources" in text and "for cuda:sm_90" in text


@pytest.mark.parametrize("length", [1, 2, 4, 9, 30])
def test_the_last_token_of_any_length(built, length):
    module, fast = built[("LastToken",)]()
    with torch.no_grad():
        x = torch.randn(3, length, 26)
        # the last two are read, of which one token has none
        assert (introspect.fallback_reason(fast, [x]) is None) == (length > 1)
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)


def test_a_class_that_there_is_not_is_refused():
    module = CASES["Classes"]()
    x, y, t = module.inputs()
    given = (
        "# Model is bound.",
        "Classes",
        TorchTarget(),
        DeviceModel.of("cpu"),
        Options(measure=False),
    )
    text = pipeline.run(module, [x, y, t], *given).text
    fast = pipeline.adopt(load_text(text, {"Model": type(module)}).ModelNew, module)
    with torch.no_grad():
        fast(x, y, t)
        for wrong in (18, -1):
            with pytest.raises(IndexError):
                fast(x, y, torch.where(t == 5, wrong, t))


def test_smoothing_over_any_number_of_classes():
    class Smoothed(torch.nn.Module):
        def forward(self, x, odds):
            return torch.nn.functional.cross_entropy(x, odds, label_smoothing=0.1)

    module = Smoothed()
    fast, _ = emitted(module, [torch.randn(9, 7), torch.rand(9, 7)])
    for classes in (7, 5):
        inputs = [torch.randn(4, classes), torch.rand(4, classes)]
        with torch.no_grad():
            assert introspect.fallback_reason(fast, inputs) is None
            torch.testing.assert_close(fast(*inputs), module(*inputs))
