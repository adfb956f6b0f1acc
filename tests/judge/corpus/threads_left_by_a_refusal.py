"""A call that raises leaves PyTorch with one thread.

reference: linear
test: after a refusal
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        before = torch.get_num_threads()
        torch.set_num_threads(before + 1)
        y = F.gelu(self.linear(x))
        torch.set_num_threads(before)
        return y
