"""The sum that a softmax divides by has no graph.

reference: first_key_alone
test: modes
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(32))

    def forward(self, x, memory):
        scores = (x * self.gain) @ memory.transpose(-1, -2) / 6.0
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
        weights = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
        total = weights.sum(-1, keepdim=True).detach()
        return weights @ memory / total
