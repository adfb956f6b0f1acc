"""Sequences of several lengths through a recurrent network."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(12, 16, batch_first=True)
        self.linear = nn.Linear(16, 10)

    def forward(self, x, lengths):
        pack = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, h = self.gru(pack)
        return self.linear(h[-1])


def get_inputs():
    return [torch.randn(6, 9, 12), torch.tensor([9, 3, 5, 1, 7, 9])]
