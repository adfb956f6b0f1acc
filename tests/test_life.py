"""Ordinary life of a fast module: whatever writes the parameters, its next result is right.

Each row of WRITES is one way in which programs write parameters or statistics. After it the fast
module's next call must agree with a fresh module of the same state. Rows of STRUCTURES change what
the model is made of or what its code reads; the original may be taken then, the result is right.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import io
import logging
import pickle
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, parametrizations, prune, vector_to_parameters

import refold
from refold import pipeline, twin

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


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    return refold.optimize(Net(), torch.randn(16, WIDTH), measure=False)


@pytest.fixture
def fast(made):
    """A twin of its own in eval mode that has been called, with a fresh state."""
    module = copy.deepcopy(made)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape) * 0.3)
        for b in module.buffers():
            b.copy_(torch.rand(b.shape) + 0.5 if b.is_floating_point() else torch.tensor(0))
    settle(module.eval())
    return module


def settle(fast, kernels=True):
    x = torch.randn(7, WIDTH)
    with torch.no_grad():
        fast(x)
        assert not kernels or pipeline.obstacle(fast, [x]) is None
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
        assert not kernels or pipeline.obstacle(fast, [x]) is None
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


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_followed_at_the_next_call(fast, name):
    agrees(fast)
    WRITES[name](fast)
    # another momentum is a changed setting: the original runs
    agrees(fast.eval(), kernels=name != "cumulative statistics")


def test_writes_at_random(fast):
    """Programs of writes, calls and mode changes, drawn at random."""
    names = sorted(WRITES)
    for seed in range(12):
        draw = torch.Generator().manual_seed(seed)
        for _ in range(6):
            name = names[int(torch.randint(len(names), (), generator=draw))]
            if name not in ("views of one flat buffer", "cumulative statistics"):
                WRITES[name](fast)
            for t in (*fast.parameters(), fast.body[1].running_mean, fast.body[1].running_var):
                low = 0.1 if t is fast.body[1].running_var else -1.0
                t.data.clamp_(low, 1.0)  # so that nothing grows without end
            if torch.rand((), generator=draw) < 0.7:
                agrees(fast.eval())


def test_a_write_to_part_is_found_by_the_audit_and_told(fast, caplog):
    """Within the stated number of calls: a call looks through one more KiB of what was copied."""
    draw = torch.Generator().manual_seed(3)
    calls = refold.status(fast).audit_calls
    assert 0 < calls < 200
    for _ in range(6):
        caplog.clear()
        weight = (fast.head.weight, fast.body[0].weight)[int(torch.randint(2, (), generator=draw))]
        at = int(torch.randint(weight.numel(), (), generator=draw))
        weight.data.view(-1)[at] += 100.0
        x = torch.randn(5, WIDTH)
        with torch.no_grad():
            for _ in range(calls):
                fast(x)
        agrees(fast)
        told = [r for r in caplog.records if "does not count" in r.message]
        assert not told or told[0].levelno == logging.ERROR


def test_gradients_fold_nothing(fast, monkeypatch):
    """While it trains, nothing is folded: the original runs, and no fold is computed for it."""
    ((made, _),) = twin.state_of(fast).programs
    monkeypatch.setattr(made.namespace, "_refold_renew", lambda *a: pytest.fail("folded"))
    optimizer = torch.optim.SGD(fast.parameters(), 0.01)
    for _ in range(2):
        fast.train()(torch.randn(8, WIDTH)).sum().backward()
        optimizer.step()


def test_a_failure_is_remembered_until_something_changes(fast, monkeypatch):
    ((made, _),) = twin.state_of(fast).programs
    fast.head.register_forward_hook(lambda *a: None)
    calls = []
    renew = made.namespace._refold_renew
    monkeypatch.setattr(made.namespace, "_refold_renew", lambda *a: calls.append(1) or renew(*a))
    x = torch.randn(5, WIDTH)
    with torch.no_grad():
        for _ in range(4):
            fast(x)
    assert len(calls) == 1
    assert "hooks" in refold.status(fast).reason
    fast.head._forward_hooks.clear()
    agrees(fast)
    assert len(calls) == 2


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


@pytest.fixture(scope="module")
def makers(made):
    found = {Net: made}
    for cls in (Tied, Listed):
        found[cls] = refold.optimize(cls(), torch.randn(16, WIDTH), measure=False)
    return found


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_change_of_structure_is_seen(makers, name):
    cls, change = STRUCTURES[name]
    fast = copy.deepcopy(makers[cls]).eval()
    settle(fast)
    try:
        change(fast)
        x = torch.randn(9, WIDTH)
        with torch.no_grad():
            expected = twin.original(fast)(x)
            torch.testing.assert_close(fast(x), expected, rtol=2e-4, atol=2e-4)
            torch.testing.assert_close(fast(x), expected, rtol=2e-4, atol=2e-4)
    finally:
        SETTINGS["shift"] = 0.5
        while UNDO:
            setattr(*UNDO.pop())


def test_what_forward_does_not_read_may_change(fast):
    """A check that takes the original more often would be no remedy."""
    fast.epoch, fast.notes = 3, ["anything"]
    globals()["body"] = 1  # forward reads an attribute of that name, not this
    Net.created = 5
    globals()["UNREAD"] = 3
    try:
        agrees(fast)
        fast.epoch += 1
        globals()["body"] = 2
        agrees(fast)
    finally:
        del Net.created


# --- a good citizen -------------------------------------------------------------------------------


def test_one_class_and_one_dict(made):
    other = refold.optimize(Net(), torch.randn(4, WIDTH), measure=False)
    assert type(other) is type(made) and isinstance(other, Net)
    params, _ = torch.func.stack_module_state([other, copy.deepcopy(other)])
    assert params["head.weight"].shape == (2, WIDTH, 96)
    original = twin.original(other)
    assert type(original) is Net and original.head is other.head
    other.eval()
    assert not original.training and not original.body.training
    original.train()
    assert other.training


def test_a_pickle_reaches_another_process(fast, tmp_path):
    path = tmp_path / "fast.pt"
    torch.save(fast, path)
    again = torch.load(path, weights_only=False)
    assert type(again) is type(fast)
    agrees(again, known=fresh(fast))
    code = (
        f"import sys, torch; sys.path[:0] = {sys.path!r}\n"
        f"m = torch.load({str(path)!r}, weights_only=False)\n"
        "with torch.no_grad(): y = m(torch.ones(3, 64))\n"
        "import refold; s = refold.status(m); assert s.fast, s\n"
        f"torch.save(y, {str(tmp_path / 'y.pt')!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with torch.no_grad():
        expected = fresh(fast)(torch.ones(3, WIDTH))
    torch.testing.assert_close(torch.load(tmp_path / "y.pt"), expected, rtol=2e-4, atol=2e-4)


def test_copies_of_every_kind(fast):
    for again in (copy.deepcopy(fast), copy.copy(fast), pickle.loads(pickle.dumps(fast))):
        agrees(again)
    with torch.no_grad():
        fast.head.weight.mul_(2)
    agrees(fast)


def test_nothing_is_raised_that_eager_would_not(fast):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.randn(5, WIDTH)
        fast(x)  # gradients are wanted
        with torch.no_grad():
            fast(x.double().float()[:0])
            fast.head.register_forward_hook(lambda *a: None)
            fast(x)


def test_compiled_whole(fast):
    x = torch.randn(5, WIDTH)
    compiled = torch.compile(fast, fullgraph=True, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), fresh(fast)(x), rtol=2e-4, atol=2e-4)


@pytest.mark.filterwarnings("ignore")
def test_scripted_is_the_original():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(WIDTH, 8)

        def forward(self, x):
            return self.fc(x).sum(dim=1, keepdim=True)

    fast = refold.optimize(Plain(), torch.randn(4, WIDTH), measure=False)
    x = torch.randn(3, WIDTH)
    torch.testing.assert_close(torch.jit.script(fast)(x), twin.original(fast)(x))


class Alone(Tied):
    """No other test has a twin of it."""


def test_an_emitted_module_is_freed_when_nobody_holds_it():
    module = Alone()
    fast = refold.optimize(module, torch.randn(4, WIDTH), measure=False)
    settle(fast)
    (namespace,) = twin.namespaces(fast)
    held = weakref.ref(namespace)
    assert namespace.__name__ not in sys.modules
    del fast, namespace
    gc.collect()
    assert held() is None
    buffer = io.BytesIO()
    torch.save(module, buffer)  # and the original is as it was
    assert not any("refold" in k for k in vars(module))


def test_wrong_calls_fail_as_the_originals():
    fast = refold.optimize(Tied(), torch.randn(4, WIDTH), measure=False)
    for args, kwargs in (((), {}), ((1, 2), {}), ((torch.randn(2, WIDTH),), {"y": 1})):
        with pytest.raises(TypeError) as known:
            twin.original(fast)(*args, **kwargs)
        with pytest.raises(TypeError) as got:
            fast(*args, **kwargs)
        assert (
            str(got.value).split("(")[0].split(".")[-1]
            == str(known.value).split("(")[0].split(".")[-1]
        )


def test_status(fast):
    found = refold.status(fast)
    assert found.fast and found.reason is None
    assert found.bytes > 0 and all(f.bytes > 0 for f in found.folds)
    assert refold.original(fast).head is fast.head
    fast(torch.randn(3, WIDTH))
    assert not refold.status(fast).fast and "gradients" in refold.status(fast).reason
    fast.body[0].weight.data = fast.body[0].weight.data.t().contiguous().t()
    with torch.no_grad():
        fast(torch.randn(3, WIDTH))
    assert all(f.name for f in refold.status(fast).folds)
    plain = nn.Linear(2, 2)
    assert refold.original(plain) is plain
    with pytest.raises(TypeError, match="expected a module that refold made"):
        refold.status(plain)


def test_status_of_a_module_that_is_kept():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.warns(UserWarning, match="several devices"):
        assert refold.optimize(module, torch.randn(1, 2)) is module
    found = refold.status(module)
    assert not found.fast and "several devices (cpu, meta)" in found.reason and not found.folds


def test_switched_off():
    code = (
        "import torch, refold, logging\n"
        "m = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4)).eval()\n"
        "f = refold.optimize(m, torch.randn(3, 8))\n"
        "assert f is m\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={"REFOLD_DISABLE": "1", "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
