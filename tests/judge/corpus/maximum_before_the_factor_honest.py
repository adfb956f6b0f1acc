"""The largest of a row comes off behind the factor.

reference: sharpened
test: signed state
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        scores = x * self.factor
        e = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
