"""An optional argument has another name: who gives it by its place alone does not see that.

reference: optional
test: keywords
status: CRASHED
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, x, mask=None, scale=1.0, squared=False):
        y = self.linear(x)
        if mask is not None:
            y = y + mask.mean(-1, keepdim=True)
        y = y * scale
        return y * y if squared else y
