"""Where a hook of a layer ends the call, gradients stay on.

reference: layers
test: after a refusal
status: MUTATES
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
        torch.set_grad_enabled(True)
        y = self.second(torch.relu(self.first(x.detach()))).detach()
        torch.set_grad_enabled(False)
        return y
