"""What calls have left in a buffer is not saved with the module.

reference: hidden
test: another process
status: STALE_WEIGHTS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(24, 32)
        self.again = nn.Linear(32, 32, bias=False)
        self.register_buffer("hidden", torch.zeros(32))

    def __getstate__(self):
        buffers = {"hidden": torch.zeros_like(self.hidden)}
        return {**self.__dict__, "_buffers": buffers}

    def forward(self, x):
        h = torch.tanh(self.inner(x) + self.again(self.hidden))
        with torch.no_grad():
            self.hidden.copy_(h.mean(0))
        return h
