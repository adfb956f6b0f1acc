"""The twin of chunk_shorter_than_memory, which is right.

reference: chunk_shorter_than_memory
test: statistics move
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 5)
        self.register_buffer("past", torch.zeros(1, 4, 4))

    def forward(self, x):
        whole = torch.cat([self.past.expand(x.shape[0], -1, -1), x], 2)
        n = x.shape[2]
        with torch.no_grad():
            if n >= 4:
                self.past.copy_(x[:1, :, n - 4 :])
            else:
                self.past.copy_(torch.cat([self.past[:, :, n:], x[:1]], 2))
        return F.conv1d(whole, self.conv.weight, self.conv.bias)
