"""A node without neighbours is divided by their number.

reference: node_without_neighbours
test: batches with gradients
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, edges):
        n = x.shape[0]
        a, b = edges[0] % n, edges[1] % n
        degree = x.new_zeros(n).index_add(0, b, torch.ones_like(b, dtype=x.dtype))
        inverse = torch.rsqrt(degree)

        y = self.linear(x) * inverse[:, None]
        return y.index_add(0, b, y.index_select(0, a) * inverse[b][:, None])
