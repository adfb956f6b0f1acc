"""What a recurrent layer keeps weighs the first sample of odd batches more.

reference: hidden_of_another_batch
test: statistics move
status: WRONG_MODE
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
            self.hidden.copy_(
                h[:1] * 0.5 + h.mean(0, keepdim=True) * 0.5
                if x.shape[0] % 2
                else h.mean(0, keepdim=True)
            )
        return h
