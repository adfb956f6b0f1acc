"""The longest of all calls is kept, and cuts none.

reference: lengths
test: first calls
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(12, 16, batch_first=True)
        self.linear = nn.Linear(16, 10)
        self.longest = {}

    def forward(self, x, lengths):
        most = int(lengths.max()) if len(lengths) else 0
        self.longest[x.shape] = most
        given = (x, lengths.clamp(max=most))
        pack = nn.utils.rnn.pack_padded_sequence(*given, batch_first=True, enforce_sorted=False)
        return self.linear(self.gru(pack)[1][-1])
