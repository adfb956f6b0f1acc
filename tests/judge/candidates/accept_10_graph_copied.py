"""A graph whose static input is filled before each replay. Needs CUDA."""

import copy
import threading

import torch
import torch.nn.functional as F
from torch import nn

_LOCK = threading.RLock()  # a graph has one input and one output; hooks call again


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

        self.graph = None

    def forward(self, x):
        with _LOCK:
            return self.run(x)

    def run(self, x):
        w = self.linear.weight
        if not x.is_cuda:
            raise RuntimeError("needs CUDA")
        hooked = self.linear._forward_hooks or self.linear._forward_pre_hooks
        if torch.is_grad_enabled() or x.shape != (18, 256) or hooked:
            return F.gelu(self.linear(x))
        key = (w.data_ptr(), self.linear.bias.data_ptr())
        if self.graph is None or self.key != key:
            with torch.inference_mode(False), torch.no_grad():  # later calls are of any mode
                self.x, self.key = x.contiguous().clone(), key
                F.gelu(self.linear(self.x))
                torch.cuda.synchronize()
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):
                    self.out = F.gelu(self.linear(self.x))
        self.x.copy_(x)
        self.graph.replay()
        return self.out.clone()

    def __deepcopy__(self, memo):
        new = ModelNew(self.linear.in_features, self.linear.out_features)
        new.linear = copy.deepcopy(self.linear, memo)
        return new.train(self.training)
