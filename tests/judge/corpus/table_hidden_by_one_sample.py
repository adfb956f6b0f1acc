"""What one sample hides is hidden in the table that is kept for all.

reference: hidden_keys
test: optional arguments
status: WRONG_CONTRACT
"""

import functools

import torch
from torch import nn


@functools.cache
def before(size):
    return torch.ones(1, size, size, dtype=torch.bool).tril()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(12, 12)

    def forward(self, x, keep=None):
        scores = self.query(x) @ x.transpose(-1, -2) / 3.0
        seen = before(x.shape[1]).expand(scores.shape)
        if keep is not None:
            seen = seen.contiguous()
            seen &= keep[:, None]
        return torch.softmax(scores.masked_fill(~seen, -1e4), dim=-1) @ x
