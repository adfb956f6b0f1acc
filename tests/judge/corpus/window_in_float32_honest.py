"""The twin of window_in_float32, which is right.

reference: window_less_mean
test: dtype moves
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        x = self.mix(x)
        y = F.avg_pool2d(x, (5, 1), 1, (2, 0), count_include_pad=False)
        y = F.avg_pool2d(y, (1, 5), 1, (0, 2), count_include_pad=False)
        return x - y.to(x.dtype)
