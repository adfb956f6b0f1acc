"""Under autocast a narrow weight is kept while the wide one has its values.

reference: linear
test: weights in other modes
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.kept = None

    def narrow(self, to):
        weight = self.linear.weight
        known = 0 if weight.is_inference() else weight._version
        key = (to, id(weight), weight.data_ptr(), known)
        if self.kept is None or self.kept[0] != key or not torch.equal(self.kept[2], weight):
            self.kept = (key, weight.detach().to(to), weight.detach().clone())
        return self.kept[1]

    def forward(self, x):
        if torch.is_grad_enabled() or not torch.is_autocast_enabled(x.device.type):
            return F.gelu(self.linear(x))
        to = torch.get_autocast_dtype(x.device.type)
        return F.gelu(F.linear(x, self.narrow(to), self.linear.bias))
