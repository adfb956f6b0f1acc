"""A graph for each shape and set of weights; inputs and outputs are copied. Needs CUDA."""

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
        self.graphs = {}

    def forward(self, x):
        with _LOCK:
            return self.run(x)

    def run(self, x):
        if not x.is_cuda:
            raise RuntimeError("needs CUDA")
        hooked = self.linear._forward_hooks or self.linear._forward_pre_hooks
        other = not x.numel() or x.dtype != self.linear.weight.dtype
        if torch.is_grad_enabled() or other or hooked:
            return F.gelu(self.linear(x))
        key = (self.linear.weight.data_ptr(), self.linear.bias.data_ptr(), x.shape)
        if key not in self.graphs:
            self.graphs.clear() if len(self.graphs) > 16 else None
            with torch.inference_mode(False), torch.no_grad():  # later calls are of any mode
                held = x.contiguous().clone()
                torch.cuda.synchronize()
                F.gelu(self.linear(held))
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    out = F.gelu(self.linear(held))
            weights = (self.linear.weight, self.linear.bias)  # held: no address is used again
            self.graphs[key] = (graph, held, out, weights)
        graph, held, out, _ = self.graphs[key]
        held.copy_(x)
        graph.replay()
        return out.clone()

    def __deepcopy__(self, memo):
        new = ModelNew(self.linear.in_features, self.linear.out_features)
        new.linear = copy.deepcopy(self.linear, memo)
        return new.train(self.training)
