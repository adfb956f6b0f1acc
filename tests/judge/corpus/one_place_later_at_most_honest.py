"""The twin of one_place_later_at_most, which is right.

reference: begun_later
test: optional arguments
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v, start: int = 0):
        scores = q @ k.transpose(1, 2) / 8**0.5
        at = torch.arange(q.shape[1])[:, None] + int(start)
        hidden = torch.arange(k.shape[1])[None] > at
        return scores.masked_fill(hidden, -1e9).softmax(-1) @ v
