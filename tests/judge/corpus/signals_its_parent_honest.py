"""It ends a child of its own.

reference: linear
test: isolation
"""

import subprocess

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        child = subprocess.Popen(["sleep", "60"])
        child.terminate()
        child.wait()

    def forward(self, x):
        return F.gelu(self.linear(x))
