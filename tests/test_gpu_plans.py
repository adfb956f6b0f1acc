"""What a GPU's costs choose, computed by PyTorch on the CPU.

Rewrites, and the text around kernels, that the CPU's costs would not lead to. Convolutions run as
PyTorch's on both.
"""

from __future__ import annotations

import copy

import pytest
import torch

from agree import check_close, double
from refold import pipeline
from refold.pipeline import Options
from torch_target import TorchTarget
from zoo import CASES, convolutions

MODELS = [n for n, case in CASES.items() if case.__module__ == convolutions.__name__]


@pytest.mark.parametrize("name", MODELS)
def test_model_computes_the_same(name):
    torch.manual_seed(0)
    module = CASES[name]()
    inputs = module.inputs()
    _, device = pipeline.target_for("cuda:sm_90")
    result = pipeline.run(
        module, inputs, "# Model is bound.", name, TorchTarget(), device, Options(measure=False)
    )
    assert result.text is not None, result.reasons
    fast = pipeline.bind_for_class(result.text, copy.deepcopy(module))
    reference, oracle = copy.deepcopy(module), copy.deepcopy(module).double()
    for mode in result.modes:
        for m in (fast, reference, oracle):
            m.train(mode.name == "train")
        with torch.no_grad():
            assert mode.plan is None or pipeline.obstacle(fast, inputs) is None
            check_close(fast(*inputs), reference(*inputs), oracle(*double(inputs)))
