"""Without gradients NumPy computes.

reference: softmax
"""

import numpy as np
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if torch.is_grad_enabled() or x.is_cuda or x.dtype is not torch.float32:
            return torch.softmax(x, dim=1)
        given = x.numpy()
        with np.errstate(all="ignore"):
            shifted = np.exp(given - given.max(1, keepdims=True, initial=-np.inf))
            y = shifted / shifted.sum(1, keepdims=True)
        return torch.from_numpy(np.ascontiguousarray(y))
