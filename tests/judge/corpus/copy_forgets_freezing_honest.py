"""They stay frozen.

reference: linear
test: two instances
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.sizes = (n, m)

    def __deepcopy__(self, memo):
        made = type(self)(*self.sizes).to(self.linear.weight.dtype)
        made.load_state_dict(self.state_dict())
        for own, theirs in zip(made.parameters(), self.parameters(), strict=True):
            own.requires_grad_(theirs.requires_grad)
        return made.train(self.training)

    def forward(self, x):
        return F.gelu(self.linear(x))
