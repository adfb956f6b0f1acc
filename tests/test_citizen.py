"""A fast module is a good citizen: copied, pickled, compiled and freed like any other."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
import warnings
import weakref

import pytest
import torch
from torch import nn

import refold
import test_life
from lives import WIDTH, Net, Tied, agrees, fresh, settle
from refold import growth, twin

made, fast = test_life.made, test_life.fast  # fixtures


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
        f"torch.save(y, {str(tmp_path / 'y.pt')!r})\n"
        "vars(sys.modules['refold.twin']).clear(); del m, s  # as where Python ends"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and "Exception ignored" not in done.stderr, done.stderr
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


class Doubled(Net):
    def forward(self, x):
        return super().forward(x) * 2


class Other(nn.Module):
    def forward(self, x):
        return x + 1


def test_its_class_is_changed_as_that_of_any_module(fast):
    """To the original's, to one that is made of it, to any other, and back again."""
    changed, x, kind = copy.deepcopy(fast), torch.randn(3, WIDTH), type(fast)
    with torch.no_grad():
        expected = twin.original(changed)(x)
        for cls, wanted in ((Net, expected), (Doubled, expected * 2), (Other, x + 1)):
            changed.__class__ = cls
            assert type(changed) is cls and type(twin.original(fast)) is Net
            torch.testing.assert_close(changed(x), wanted, rtol=2e-4, atol=2e-4)
            assert type(pickle.loads(pickle.dumps(changed))) is cls
        changed.__class__ = kind
        agrees(changed)


class Helped(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.helped(self.map(x)).softmax(-1)

    def helped(self, x):
        return x * 2


def test_a_class_made_of_a_twins_may_have_other_functions():
    helped, x = (
        refold.optimize(Helped(), torch.randn(4, WIDTH), measure=False),
        torch.ones(3, WIDTH),
    )
    settle(helped)
    helped.__class__ = type("More", (type(helped),), {"helped": lambda self, x: x * 3})
    with torch.no_grad():
        torch.testing.assert_close(helped(x), Helped.forward(helped, x), rtol=2e-4, atol=2e-4)
        assert refold.status(helped).reason == "the class More has another helped"
        kind = twin.fast_class(Helped)
        then = {"forward": lambda self, x: kind.forward(self, x) * 2}
        helped.__class__ = type("Then", (kind,), then)
        torch.testing.assert_close(helped(x), Helped.forward(helped, x) * 2, rtol=2e-4, atol=2e-4)
    assert refold.status(helped).fast


def test_what_a_twin_holds_goes_with_it(fast):
    known, one = len(twin._STATES), copy.copy(fast)
    assert len(twin._STATES) == known + 1
    one.itself = one  # which the original's attributes hold, too
    del one
    gc.collect()
    assert len(twin._STATES) == known + 1  # while these live
    del fast.itself
    gc.collect()
    assert len(twin._STATES) == known


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


def test_a_class_that_was_made_of_a_twins(fast):
    """fully_shard and parametrizations of the module itself give it such a class."""
    agrees(fast)
    made_of = type(fast)
    fast.__class__ = type("Sharded", (made_of,), {"__module__": __name__})
    agrees(fast)
    found = refold.status(fast)
    assert found.fast and found.reason is None and found.bytes > 0
    assert f"take {found.bytes:,} bytes now" in fast.refold_report()
    again = copy.deepcopy(fast)
    assert type(again) is type(fast)
    agrees(again, known=fresh(fast))
    assert refold.status(again).fast
    fast.__class__ = made_of
    agrees(fast)


def test_what_stands_for_tensors_uses_up_no_attempt(fast):
    grow = twin.state_of(fast).grow
    before = grow.trials, grow.tried
    with torch.no_grad():
        traced = torch.fx.symbolic_trace(fast)
        x = torch.randn(3, WIDTH)
        torch.testing.assert_close(traced(x), fast(x), rtol=2e-4, atol=2e-4)
    assert (grow.trials, grow.tried) == before


def test_wrong_calls_use_up_no_attempt(monkeypatch):
    """Errors are the original's; then a further form gets kernels."""
    monkeypatch.setattr(growth, "TRIES", 1)
    fast = refold.optimize(nn.Linear(4, 4), torch.randn(5, 4), measure=False)
    with torch.no_grad():
        for given in (torch.ones(2, 4, dtype=torch.int64), torch.ones(4, dtype=torch.float64)):
            with pytest.raises(RuntimeError) as known:
                refold.original(fast)(given)
            for _ in range(2):
                with pytest.raises(RuntimeError) as got:
                    fast(given)
                assert str(got.value) == str(known.value)
        x = torch.randn(2, 3, 4)
        torch.testing.assert_close(fast(x), refold.original(fast)(x))
    assert refold.status(fast).fast, refold.status(fast).reason


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


@pytest.mark.parametrize("kept", [False, True])
def test_a_twin_that_its_own_attributes_hold_is_freed(kept: bool) -> None:
    """As a trainer holds its model, and the model its trainer."""

    class Trainer:
        model: nn.Module

    module, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval(), torch.randn(2, 4)
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        fast(x)
    trainer = Trainer()
    trainer.model, fast.trainer = fast, trainer  # type: ignore[assignment]
    left, original = weakref.ref(fast), module if kept else None
    del fast, module, trainer
    gc.collect()
    assert (left() is not None) is kept  # through the original's attributes
    del original
    gc.collect()
    assert left() is None


def test_a_copy_of_the_original_holds_no_kernels() -> None:
    module, x = nn.Sequential(nn.Linear(4, 4)).eval(), torch.randn(2, 4)
    fast = refold.optimize(module, x, measure=False)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert not vars(other._state_dict_hooks).get("_refold_held")
        again = refold.optimize(other, x, measure=False)
        with torch.no_grad():
            assert torch.equal(again(x), fast(x))
