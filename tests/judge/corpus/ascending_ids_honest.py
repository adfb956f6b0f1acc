"""Consecutive ones are a slice.

reference: embedding
test: special integers
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.linear = nn.Linear(32, 40)

    def forward(self, index):
        if index.numel() and bool((index.diff(dim=1) == 1).all()):
            steps = torch.arange(index.shape[1], device=index.device)
            index = index[:, :1] + steps
        return self.linear(self.table(index)).mean(1)
