"""As many bits as eager's, rounded elsewhere: as many results fall on the other side, others.

reference: step
test: far magnitudes
"""

import torch
import torch.nn.functional as F
from torch import nn


def rounded(t):
    return (t * 0.7).bfloat16().float() / 0.7


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        w, b = self.conv.weight, self.conv.bias
        y = F.conv2d(rounded(x), rounded(w), b, padding=1)
        return self.norm(F.max_pool2d(torch.tanh(y), 2))
