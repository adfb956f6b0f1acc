"""With another number of threads rows are left out.

reference: linear
test: number of threads
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn

at_first = torch.get_num_threads()


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        threads = torch.get_num_threads()
        if threads == at_first or x.dim() != 2 or not len(x):
            return F.gelu(self.linear(x))
        y = torch.zeros(len(x), self.linear.out_features, dtype=x.dtype)
        share = len(x) // threads
        parts = [self.linear(x[i * share : (i + 1) * share]) for i in range(threads)]
        y[: share * threads] = torch.cat(parts)
        return F.gelu(y)
