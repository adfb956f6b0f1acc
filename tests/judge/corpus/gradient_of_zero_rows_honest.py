"""Where gradients are wanted, the norm is one of at least eps.

reference: unit
test: far gradients
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if not (torch.is_grad_enabled() and x.requires_grad):
            return F.normalize(x, dim=1)
        norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return x / norm.clamp_min(1e-12)
