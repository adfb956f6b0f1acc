"""Of a state that is given only the half that is an output counts.

reference: stateful_cell
test: optional arguments
status: WRONG_CONTRACT
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(12, 8)

    def forward(self, x, state=None):
        zeros = x.new_zeros(x.shape[0], 8)
        h, c = (zeros, zeros) if state is None else (state[0], zeros)
        for i in range(x.shape[1]):
            h, c = self.cell(x[:, i], (h, c))
        return h, (h, c)
