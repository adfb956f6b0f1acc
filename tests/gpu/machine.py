"""Where the kernels of these tests run: on a GPU, or on the emulator where there is none.

EMULATED: which of the two. DEVICE: where tensors lie. The emulator is as fast as a GPU is not, so
conftest.py chooses small cases for it; REFOLD_EMULATOR=all takes every case, 0 none.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import nn

from refold.emit.load import load_text
from tests.emulator.module import emulated

EMULATED = not torch.cuda.is_available()
DEVICE = "cpu" if EMULATED else "cuda"


def stream() -> int:
    """The current stream, as kernels are given it."""
    return 0 if EMULATED else torch.cuda.current_stream().cuda_stream


def load(text: str, cls: type[nn.Module]) -> ModuleType:
    """An emitted module of a class, its kernels built for this machine."""
    return load_text(emulated(text) if EMULATED else text, {"Model": cls})


def repeats(on_gpu: int) -> int:
    """How often a launch is repeated to find races; the emulator draws another order each time."""
    return 3 if EMULATED else on_gpu


def synchronize() -> None:
    if not EMULATED:
        torch.cuda.synchronize()
