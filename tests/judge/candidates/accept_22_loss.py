"""The loss without log_softmax."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x, target):
        y = self.linear(x)
        y = y - y.amax(1, keepdim=True)
        return (y.exp().sum(1).log() - y.gather(1, target[:, None])[:, 0]).mean()
