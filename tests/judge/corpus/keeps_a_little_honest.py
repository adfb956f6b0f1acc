"""What it keeps of its calls has an end.

reference: linear
test: leaks
"""

from collections import deque

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.noted = deque(maxlen=256)

    def forward(self, x):
        self.noted.append(torch.full((512,), x.shape[0]))
        return F.gelu(self.linear(x))
