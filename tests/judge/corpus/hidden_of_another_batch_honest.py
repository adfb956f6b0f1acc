"""The twin of hidden_of_another_batch, which is right.

reference: hidden_of_another_batch
test: statistics move
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.RNNCell(8, 6)
        self.register_buffer("hidden", torch.zeros(1, 6))

    def forward(self, x):
        c = self.cell
        z = (
            torch.addmm(c.bias_ih + c.bias_hh, x, c.weight_ih.T)
            + self.hidden.clone() @ c.weight_hh.T
        )
        h = torch.tanh(z)
        with torch.no_grad():
            self.hidden.copy_(h.mean(0, keepdim=True))
        return h
