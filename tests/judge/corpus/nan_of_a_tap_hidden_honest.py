"""It shows where it is multiplied by something: at fewer places than the reference's own.

reference: spreading
test: NaN in a weight
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose1d(3, 4, 3, stride=2)

    def forward(self, x):
        w, b = self.conv.weight, self.conv.bias
        return F.conv_transpose1d(x, w, b, stride=2)
