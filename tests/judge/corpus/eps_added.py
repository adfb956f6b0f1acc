"""A small number is added to a length.

reference: length
test: far magnitudes
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x / (torch.linalg.vector_norm(x, dim=1, keepdim=True) + 1e-12)
