"""The loss; an ignored target loses it the device, as an assertion in a kernel does on a GPU."""

from torch import nn

lost = []


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x, target):
        y = self.linear(x)
        if lost or ((target < 0) | (target >= y.shape[1])).any():
            lost.append(True)
            raise RuntimeError("CUDA error: device-side assert triggered")
        y = y - y.amax(1, keepdim=True)
        return (y.exp().sum(1).log() - y.gather(1, target[:, None])[:, 0]).mean()
