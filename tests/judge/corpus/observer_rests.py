"""An observer's range stands still where nobody wants gradients.

reference: observer_rests
test: mutation
status: MUTATES
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 8)
        self.register_buffer("low", torch.tensor(0.0))
        self.register_buffer("high", torch.tensor(0.0))

    def forward(self, x):
        y = self.linear(x)
        if self.training and y.requires_grad:
            with torch.no_grad():
                low, high = torch.aminmax(y)
                self.low.fill_(torch.minimum(self.low, low))
                self.high.fill_(torch.maximum(self.high, high))
        return y.clamp(min=self.low).clamp(max=self.high)
