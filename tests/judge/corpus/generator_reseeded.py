"""Each call puts the generator back to where the first one of its seed left it.

reference: dropout
test: unseeded sequence
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        y = self.dropout(self.linear(x))
        if self.training:
            seed = torch.initial_seed()
            generator = torch.cuda if x.is_cuda else torch
            if getattr(self, "seed", None) == seed:
                generator.set_rng_state(self.state)
            self.seed, self.state = seed, generator.get_rng_state()
        return y
