"""A chunk that is shorter than what is kept of the stream puts zeros before it.

reference: chunk_shorter_than_memory
test: statistics move
status: WRONG_MODE
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
                self.past.copy_(F.pad(x[:1], (4 - n, 0)))
        return F.conv1d(whole, self.conv.weight, self.conv.bias)
