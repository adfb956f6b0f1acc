"""A call of its own passes by hooks that take keywords.

reference: linear
test: hooks
status: WRONG_CONTRACT
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))

    def __call__(self, *args, **kwargs):
        everywhere = nn.modules.module
        if (
            self._backward_hooks
            or self._backward_pre_hooks
            or everywhere._global_forward_hooks
            or everywhere._global_forward_pre_hooks
        ):
            return super().__call__(*args, **kwargs)
        for hook in self._forward_pre_hooks.values():
            found = hook(self, args) if hook.__code__.co_argcount == 2 else None
            args = args if found is None else found if isinstance(found, tuple) else (found,)
        output = self.forward(*args, **kwargs)
        for hook in self._forward_hooks.values():
            found = hook(self, args, output) if hook.__code__.co_argcount == 3 else None
            output = output if found is None else found
        return output
