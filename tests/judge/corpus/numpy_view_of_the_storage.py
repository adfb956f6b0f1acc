"""A view of NumPy's is taken again only where a weight has another storage.

reference: linear
test: ways to write
status: STALE_WEIGHTS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.key = None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        plain = x.dtype == w.dtype == torch.float32 and type(x) is torch.Tensor
        if torch.is_grad_enabled() or not plain or w.device.type != "cpu":
            return F.gelu(self.linear(x))
        key = tuple((t.untyped_storage()._cdata, t.stride(), t.storage_offset()) for t in (w, b))
        if self.key != key:
            self.key, self.views = key, [t.detach().numpy() for t in (w, b)]
        w, b = (torch.from_numpy(v) for v in self.views)
        return F.gelu(F.linear(x, w, b))

    def __deepcopy__(self, memo):
        copied = ModelNew(self.linear.in_features, self.linear.out_features)
        memo[id(self)] = copied
        copied.load_state_dict(self.state_dict())
        for name, p in self.named_parameters():
            copied.get_parameter(name).requires_grad_(p.requires_grad)
        return copied.train(self.training)

    def __getstate__(self):
        return {**self.__dict__, "key": None, "views": None}
