"""A call silences NumPy's floating point errors.

reference: linear
test: flags
status: MUTATES
"""

import numpy as np
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        np.seterr(all="ignore")
        return F.gelu(self.linear(x))
