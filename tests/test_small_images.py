"""Where PyTorch's library computes images so few in fp32 that an emitted file's kernels, of TF32,
would be less accurate: the original takes them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from refold.conv_rules import by_rule
from test_convolutions import HOPPER
from test_models import written
from test_turned import SM_90

CASES = {  # a module, its image, what is asked before a call
    "transposed": (
        nn.ConvTranspose2d(64, 64, 3, padding=1),
        (2, 64, 64, 64),
        "if input.shape[0] * input.shape[2] * input.shape[3] < 4608:",
    ),
    "transposed, twice the features": (
        nn.ConvTranspose2d(64, 128, 4, stride=2, padding=1),
        (2, 64, 64, 64),
        "if input.shape[0] * input.shape[2] * input.shape[3] < 2304:",
    ),
    "32 channels": (
        nn.Conv2d(32, 64, 5),
        (2, 32, 64, 64),
        "if input.shape[0] * input.shape[2] * input.shape[3] < 1024:",
    ),
    "64 channels": (nn.Conv2d(64, 64, 3), (2, 64, 64, 64), None),
    "fp32 as it is": (nn.Conv2d(8, 64, 3), (2, 8, 64, 64), None),
    "few images in the example, so fp32": (nn.Conv2d(32, 64, 5), (2, 32, 9, 9), None),
}


@pytest.mark.parametrize("case", CASES)
def test_few_places_are_the_original_s(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    module, size, asked = CASES[case]
    net = nn.Sequential(module, nn.ReLU()).eval()
    x = torch.randn(size)
    _, result = written(net, [x], SM_90, convolutions=by_rule("tf32", HOPPER))
    assert result.text is not None and "rf::convolution<" in result.text
    found = [line.strip() for line in result.text.splitlines() if "input.shape[0] * " in line]
    tests = [line for line in found if line.startswith("if ")]
    assert tests == ([] if asked is None else [asked])
    assert ("PyTorch's convolution is of fp32" in " ".join(result.text.split())) is (
        asked is not None
    )
