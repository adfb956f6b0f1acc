"""Every model of the zoo, through capture, rewriting, plan and emission, against float64."""

from __future__ import annotations

import copy

import pytest
import torch

from agree import check_close, double
from refold import pipeline
from refold.pipeline import Options
from zoo import CASES


def emitted(module, inputs):
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
    return pipeline.bind_for_class(result.text, module), result


@pytest.mark.parametrize("name", CASES)
def test_model_computes_the_same(name):
    torch.manual_seed(0)
    module = CASES[name]()
    inputs = module.inputs()
    fast, _ = emitted(module, inputs)
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
