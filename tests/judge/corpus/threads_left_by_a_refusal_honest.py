"""The twin of threads_left_by_a_refusal, which is right.

reference: linear
test: after a refusal
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
        try:
            y = F.gelu(self.linear(x))
        finally:
            torch.set_num_threads(before)
        return y
