"""The twin of iteration_stands_still, which is right.

reference: iteration_stands_still
test: mutation
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.utils.parametrizations.spectral_norm(nn.Linear(20, 12))

    def forward(self, x):
        p = self.linear.parametrizations.weight
        w, u, v = p.original, p[0]._u, p[0]._v
        with torch.no_grad():
            if self.linear.parametrizations.weight[0].training:
                u.copy_(F.normalize(torch.mv(w, v), dim=0, eps=1e-12))
                v.copy_(F.normalize(torch.mv(w.T, u), dim=0, eps=1e-12))
        sigma = torch.vdot(u.clone(), torch.mv(w, v.clone()))
        return torch.relu(F.linear(x, w / sigma, self.linear.bias))
