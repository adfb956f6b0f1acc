"""The output's names come in another order.

reference: several
test: plain output
status: WRONG_CONTRACT
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, x):
        y = self.linear(x)
        return {"all": y, "sum": y.sum(-1), "above": y > 0.1}
