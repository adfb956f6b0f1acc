"""The forward is a graph that torch.fx traced.

reference: gated
"""

import torch
from torch import fx, nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)
        self.graph = fx.Tracer().trace(self)
        self.code = fx.GraphModule(self, self.graph).code

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k not in ("graph", "run")}

    def forward(self, x, y):
        if "code" not in self.__dict__:
            return self.linear(x) * torch.sigmoid(self.gate(y))
        run = self.__dict__.get("run")
        if run is None:
            space = {"torch": torch}
            exec(self.code, space)
            run = self.__dict__["run"] = space["forward"]
        return run(self, x, y)
