"""Every model of the zoo, through capture, rewriting, plan and emission, against float64."""

from __future__ import annotations

import copy

import pytest
import torch

from agree import check_close, double
from beforehand import beforehand
from refold import pipeline
from refold.pipeline import Options
from zoo import CASES


def written(module, inputs):
    """A module and what the pipeline makes of it, not yet compiled."""
    target, device = pipeline.target_for("cpu")
    result = pipeline.run(
        module,
        inputs,
        "# Model is bound by the test.",
        type(module).__name__,
        target,
        device,
        Options(measure=False),
    )
    assert result.text is not None, result.reasons
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
        torch.manual_seed(0)
        module = CASES[name]()
        return written(module, module.inputs())

    return beforehand(request, "test_model_computes_the_same", write, compiled)


@pytest.mark.parametrize("name", CASES)
def test_model_computes_the_same(built, name):
    module, fast = built[(name,)]()
    for training in (True, False):
        for seed in (1, 2):
            torch.manual_seed(seed)
            inputs = module.inputs()
            reference, oracle = copy.deepcopy(module), copy.deepcopy(module).double()
            twin = copy.deepcopy(fast)
            for m in (reference, oracle, twin):
                m.train(training)
            if hasattr(oracle, "offset"):
                oracle.offset = oracle.offset.double()
            with torch.no_grad():
                obstacle = pipeline.obstacle(twin, inputs)
                assert obstacle is None
                eager, truth = reference(*inputs), oracle(*double(inputs))
                check_close(twin(*inputs), eager, truth)
            for k, v in reference.state_dict().items():
                torch.testing.assert_close(twin.state_dict()[k], v, rtol=2e-5, atol=1e-6)
