"""Each call leaves a file open, as long as there are descriptors.

reference: linear
test: leaks
status: CRASHED
"""

import contextlib
import os

import torch.nn.functional as F
from torch import nn

held = []


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        with contextlib.suppress(OSError):
            held.append(os.open(os.devnull, os.O_RDONLY))
        return F.gelu(self.linear(x))
