"""The twin of grad_mode_left_by_a_hook, which is right.

reference: layers
test: after a refusal
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.second = nn.Linear(32, 32)

    def forward(self, x):
        if torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return self.second(torch.relu(self.first(x)))
        if x.shape[-1] != 32:
            raise ValueError("expected 32 features")
        with torch.enable_grad():
            y = self.second(torch.relu(self.first(x.detach()))).detach()
        return y
