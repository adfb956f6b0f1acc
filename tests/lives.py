"""What tests of ordinary life are made of: models, the ways in which programs write, and changes of
structure: a row of WRITES or STRUCTURES each."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, parametrizations, prune, vector_to_parameters

from refold import introspect, twin

WIDTH = 64
SCALE = 2.0
SETTINGS = {"shift": 0.5}


def doubled(x):
    return x * SCALE


class Net(nn.Module):
    """A weight above and below the size up to which memory is compared whole; batch norm."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 96), nn.BatchNorm1d(96), nn.ReLU())
        self.head = nn.Linear(96, WIDTH)
        self.extra = None

    def forward(self, x):
        y = self.head(self.body(x)).sum(dim=1, keepdim=True)
        return doubled(y) + SETTINGS["shift"]


@contextlib.contextmanager
def at_once(fast):
    """A module whose folds are computed anew at each write, however often it is written to."""
    spaces = twin.namespaces(fast)
    free = [space._REFOLD_FREE for space in spaces]
    try:
        for space in spaces:
            space._REFOLD_FREE = sys.maxsize
        yield fast
    finally:
        for space, was in zip(spaces, free, strict=True):
            space._REFOLD_FREE = was


def settle(fast, kernels=True):
    x = torch.randn(7, WIDTH)
    with torch.no_grad():
        fast(x)
        assert not kernels or introspect.fallback_reason(fast, [x]) is None
    return x


def fresh(module, cls=Net):
    """A module of the original class with copies of all tensors, which nothing else holds."""
    other = cls()
    other.load_state_dict({k: v.clone() for k, v in module.state_dict().items()})
    return other.train(module.training)


def agrees(fast, kernels=True, known=None):
    x = torch.randn(9, WIDTH)
    with torch.no_grad():
        expected = (known or fresh(fast))(x)
        torch.testing.assert_close(fast(x), expected, rtol=2e-4, atol=2e-4)
        assert not kernels or introspect.fallback_reason(fast, [x]) is None
    return expected


def trained(make: Callable[..., torch.optim.Optimizer], through=lambda m: m):
    """A training step in train mode by an optimizer, then eval mode again."""

    def step(m):
        optimizer = make(m.parameters())
        m.train()
        through(m)(torch.randn(8, WIDTH)).square().mean().backward()
        optimizer.step()
        m.eval()

    return step


def moved(m, training=True):
    """Batch norm's statistics, by a forward with gradients on or off."""
    m.train()
    with torch.set_grad_enabled(training):
        m(torch.randn(32, WIDTH) * 3 + 1)
    m.eval()


def away_and_back(m):
    """Memory given up and taken again, as FSDP does; the address may come back."""
    p = m.head.weight
    kept, bytes_ = p.detach().clone() * 1.5, p.untyped_storage().nbytes()
    p.untyped_storage().resize_(0)
    p.untyped_storage().resize_(bytes_)
    p.data.copy_(kept)


def twice_assigned(m):
    m.head.weight.data = torch.randn_like(m.head.weight)
    m.head.weight.data = torch.randn_like(m.head.weight)


def by_numpy(m):
    np.asarray(m.head.weight.detach())[...] *= 1.5


def by_ctypes(m):
    p = m.head.weight
    values = (torch.randn_like(p)).contiguous()
    ctypes.memmove(p.data_ptr(), values.data_ptr(), p.numel() * p.element_size())


def as_flat_views(m):
    """All parameters become views of one buffer, which is written."""
    flat = parameters_to_vector(m.parameters()).detach().clone()
    vector_to_parameters(flat, m.parameters())
    settle(m)
    flat.mul_(1.5)


def averaged(m):
    """Weights swapped for averaged ones and back, as EMA does, with a call in between."""
    shadow = {k: torch.randn_like(p) for k, p in m.named_parameters()}
    kept = {k: p.detach().clone() for k, p in m.named_parameters()}
    for k, p in m.named_parameters():
        p.data.copy_(shadow[k])
    agrees(m)
    for k, p in m.named_parameters():
        p.data.copy_(kept[k])


def swapped(m):
    other = nn.Parameter(torch.randn_like(m.head.weight))
    torch.utils.swap_tensors(m.head.weight, other)


def swap_on_load(m):
    state = {k: v + 0.5 if v.is_floating_point() else v for k, v in m.state_dict().items()}
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        m.load_state_dict(state)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def other_thread(m):
    import threading

    t = threading.Thread(target=lambda: m.head.weight.data.mul_(1.5))
    t.start()
    t.join()


def inside_inference(m):
    with torch.inference_mode():
        m.head.weight.mul_(1.5)


WRITES: dict[str, Callable[[nn.Module], object]] = {
    "SGD": trained(lambda p: torch.optim.SGD(p, 0.1)),
    "fused SGD": trained(lambda p: torch.optim.SGD(p, 0.1, fused=True)),
    "fused AdamW": trained(lambda p: torch.optim.AdamW(p, 0.1, fused=True)),
    "fused AdamW, small steps": trained(lambda p: torch.optim.AdamW(p, 1e-4, fused=True)),
    "fused Adagrad": trained(lambda p: torch.optim.Adagrad(p, 0.1, fused=True)),
    "foreach AdamW": trained(lambda p: torch.optim.AdamW(p, 0.1, foreach=True)),
    "trained through the original": trained(lambda p: torch.optim.SGD(p, 0.1), twin.original),
    "statistics with gradients": moved,
    "statistics without gradients": lambda m: moved(m, False),
    "statistics through the original": lambda m: moved(twin.original(m)),
    "cumulative statistics": lambda m: setattr(m.body[1], "momentum", None) or moved(m),
    "statistics by F.batch_norm": lambda m: nn.functional.batch_norm(
        torch.randn(32, 96) * 4, m.body[1].running_mean, m.body[1].running_var, training=True
    ),
    "running_var.data": lambda m: m.body[1].running_var.data.mul_(3),
    "reset_running_stats": lambda m: m.body[1].reset_running_stats(),
    "load_state_dict": lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
    "load_state_dict, assign": lambda m: m.load_state_dict(
        {k: v * 2 for k, v in m.state_dict().items()}, assign=True
    ),
    "no_grad in place": lambda m: torch.no_grad()(m.head.weight.mul_)(1.5),
    "one element, counted": lambda m: torch.no_grad()(m.head.weight[3, 4].fill_)(50.0),
    "a parameter assigned": lambda m: setattr(m.head, "weight", nn.Parameter(torch.randn(64, 96))),
    "data.mul_": lambda m: m.head.weight.data.mul_(1.5),
    "data.lerp_": lambda m: m.head.weight.data.lerp_(torch.randn(64, 96), 0.5),
    "data +=": lambda m: m.head.weight.data.__iadd__(1.0),
    "data = ": lambda m: setattr(m.head.weight, "data", torch.randn(64, 96)),
    "data = , twice": twice_assigned,
    "data half masked": lambda m: m.head.weight.data.mul_((torch.rand(64, 96) > 0.5).float()),
    "data of a bias, one element": lambda m: m.head.bias.data[5].add_(30.0),
    "foreach on data": lambda m: torch._foreach_mul_([p.data for p in m.parameters()], 1.5),
    "numpy": by_numpy,
    "memmove": by_ctypes,
    "averaged weights swapped in and out": averaged,
    "storage resized": away_and_back,
    "views of one flat buffer": as_flat_views,
    "swap_tensors": swapped,
    "load_state_dict by swapping": swap_on_load,
    "another thread": other_thread,
    "in inference mode": inside_inference,
    "nothing": lambda m: None,
}


# --- structure ------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(torch.relu(self.a(x))).sum(dim=1, keepdim=True)


class Gate(nn.Module):
    GAIN = 2.0

    def forward(self, x):
        return x * self.GAIN


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH), Gate()])
        self.weights = nn.ParameterList([torch.randn(WIDTH)])
        self.plain = nn.Linear(WIDTH, WIDTH, bias=False)
        self.power = 2.0

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        for w in self.weights:
            x = x * w
        return self.plain(x).sum(dim=1, keepdim=True) * self.power


UNDO: list[tuple[object, str, object]] = []


def patched(module: object, name: str, value: object):
    """A change that the test undoes."""

    def change(m):
        UNDO.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    return change


def half(self, x):
    return x * 0.5


STRUCTURES: dict[str, tuple[type, Callable[[nn.Module], object]]] = {
    "a layer appended": (Listed, lambda m: m.layers.append(nn.Tanh())),
    "a parameter appended": (Listed, lambda m: m.weights.append(torch.randn(WIDTH))),
    "a parameter where there was none": (
        Listed,
        lambda m: setattr(m.plain, "bias", nn.Parameter(torch.randn(WIDTH) + 3)),
    ),
    "a layer removed": (Listed, lambda m: m.layers.__delitem__(1)),
    "a submodule replaced": (Listed, lambda m: m.layers.__setitem__(1, nn.Tanh())),
    "a setting": (Listed, lambda m: setattr(m, "power", 3.0)),
    "a class attribute": (Listed, patched(Gate, "GAIN", 3.0)),
    "a child's forward patched": (Listed, patched(Gate, "forward", half)),
    "the model's forward patched": (Listed, patched(Listed, "forward", lambda self, x: x[:, :1])),
    "a forward of the instance": (Listed, lambda m: setattr(m.plain, "forward", lambda x: x * 2)),
    "a global number": (Net, patched(sys.modules[__name__], "SCALE", 3.0)),
    "a global function": (Net, patched(sys.modules[__name__], "doubled", lambda x: x * 5)),
    "a global dict": (Net, lambda m: SETTINGS.__setitem__("shift", 9.0)),
    "F.linear patched": (Listed, patched(nn.functional, "linear", lambda x, w, b=None: x)),
    "untied": (Tied, lambda m: setattr(m.b, "weight", nn.Parameter(torch.randn(WIDTH, WIDTH)))),
    "untied by load_state_dict": (
        Tied,
        lambda m: m.load_state_dict(
            {k: torch.randn_like(v) for k, v in m.state_dict().items()}, assign=True
        ),
    ),
    "a hook": (Listed, lambda m: m.plain.register_forward_hook(lambda m, a, y: y + 1)),
    "a hook before": (Listed, lambda m: m.plain.register_forward_pre_hook(lambda m, a: a[0] + 1)),
    "a parametrization": (Listed, lambda m: parametrizations.weight_norm(m.plain)),
    "pruned": (Listed, lambda m: prune.l1_unstructured(m.plain, "weight", 0.5)),
}
