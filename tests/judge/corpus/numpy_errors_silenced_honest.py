"""The twin of numpy_errors_silenced, which is right.

reference: linear
test: flags
"""

import numpy as np
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        with np.errstate(all="ignore"):
            return F.gelu(self.linear(x))
