"""Rows are divided among threads, the last has the rest.

reference: linear
test: number of threads
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
        return F.gelu(torch.cat([self.linear(part) for part in x.chunk(threads)]))
