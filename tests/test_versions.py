"""How a call reads PyTorch's count of the writes to a tensor."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest
import torch
from torch import nn

import refold
from refold import introspect, twin

FUNCTION = "_ZNK2at10TensorBase8_versionEv"


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(512, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).sum(dim=1, keepdim=True)


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(3), nn.Parameter(torch.ones(3)), nn.Buffer(torch.ones(3)), torch.ones(4)[1:]],
    ids=["tensor", "parameter", "buffer", "view"],
)
def test_pytorch_has_the_function_and_a_tensor_holds_its_implementation(tensor):
    """What watch.h counts on; where it is not so, calls are right and slower."""
    lib = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    version = getattr(ctypes.CDLL(str(lib), mode=os.RTLD_NOLOAD | os.RTLD_LAZY), FUNCTION)
    version.restype = ctypes.c_int64
    held = (ctypes.c_void_p * (type(tensor).__basicsize__ // 8)).from_address(id(tensor))
    at = [i for i, word in enumerate(held) if word == tensor._cdata]
    assert at and at[0] >= 2  # behind the count of references and the type
    for _ in range(3):
        with torch.no_grad():
            tensor.mul_(2)
        where = ctypes.c_void_p(id(tensor) + 8 * at[0])
        assert version(where) == tensor._version > 0


def test_without_it_writes_are_followed_by_python():
    torch.manual_seed(0)
    module, x = Scaled().eval(), torch.randn(5, 512)
    text = refold.optimize(module, x, measure=False).refold_source
    assert text.count(f'"{FUNCTION}"') == 1
    fast = twin.bind(text.replace(FUNCTION, f"{FUNCTION}_of_old"), module)
    with torch.no_grad():
        for at in (1001, 2002, 3003):  # one element: what is read of the memory does not show it
            fast.fc.weight.view(-1)[at] += 1
            assert introspect.fallback_reason(fast, [x]) is None
            torch.testing.assert_close(fast(x), Scaled.forward(fast, x))
