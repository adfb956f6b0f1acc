"""The middle frequency of an odd length is taken for that of an even one.

reference: odd_length_is_lost
test: batches with gradients
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.damp = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        n = x.shape[-1]
        f = torch.fft.fft(x, dim=-1)
        at = torch.arange(n)
        at = torch.minimum(at, n - at)
        at = at + (n % 2) * (at == n // 2) * (n > 1)
        return torch.fft.ifft(f * torch.exp(-self.damp.abs() * at), dim=-1).real
