"""What an emitted module promises beside its values: never stale, any input, a good citizen."""

from __future__ import annotations

import copy
import io
import warnings
from unittest import mock

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import refold
from lives import at_once
from refold import introspect, pipeline, twin


class Net(nn.Module):
    def __init__(self, gain: float = 2.0):
        super().__init__()
        self.fc = nn.Linear(40, 24)
        self.bn = nn.BatchNorm1d(24)
        self.gain = gain

    def forward(self, x):
        return (self.bn(self.fc(x)) * self.gain).sum(dim=1, keepdim=True)


@pytest.fixture(scope="module")
def optimized():
    """refold.optimize for a Net as it is made; all have one text, which is written once."""
    run, found = pipeline.run, []

    def once(*args, **options):
        if not found:
            found.append(run(*args, **options))
        return found[0]

    def made(module):
        with mock.patch("refold.pipeline.run", once):
            fast = refold.optimize(module, torch.randn(16, 40), measure=False)
        assert fast is not module
        return fast

    return made


@pytest.fixture()
def pair(optimized):
    torch.manual_seed(0)
    module = Net()
    return module, optimized(module)


def same(module, fast, x=None, expect_fast=True):
    x = torch.randn(9, 40) if x is None else x
    with torch.no_grad():
        if expect_fast:
            assert introspect.fallback_reason(fast, [x]) is None
        state = copy.deepcopy(module.state_dict())
        expected = module(x)
        after = copy.deepcopy(module.state_dict())
        module.load_state_dict(state)
        torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-5)
        for k, v in fast.state_dict().items():
            torch.testing.assert_close(v, after[k], rtol=1e-4, atol=1e-5)


def test_it_is_the_same_kind_of_module(pair):
    module, fast = pair
    assert isinstance(fast, Net)
    assert list(fast.state_dict()) == list(module.state_dict())
    assert fast.fc.weight is module.fc.weight


def test_updates_are_followed(pair):
    module, fast = pair
    with at_once(fast):
        same(module.eval(), fast.eval())
        module.fc.weight.detach().mul_(1.5)
        same(module, fast)
        module.load_state_dict({k: v * 0.5 for k, v in module.state_dict().items()})
        same(module, fast)
        module.fc.weight = nn.Parameter(torch.randn(24, 40))
        same(module, fast)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        fast(torch.randn(9, 40)).square().sum().backward()
        optimizer.step()
        same(module, fast)
        module.fc.weight.data = torch.randn(24, 40)
        same(module, fast)


def test_a_write_through_data_needs_no_refresh(pair):
    module, fast = pair
    same(module.eval(), fast.eval())
    module.fc.weight.data.mul_(3.0)
    same(module, fast)
    fast.refold_refresh()
    same(module, fast)


def test_copies_stand_alone(pair):
    module, fast = pair
    same(module.eval(), fast.eval())
    twin = copy.deepcopy(fast)
    with torch.no_grad():
        module.fc.weight.zero_()
    x = torch.randn(5, 40)
    with torch.no_grad():
        assert not torch.allclose(twin(x), fast(x))
    original = copy.deepcopy(module)
    same(original, copy.deepcopy(fast))


def test_state_dict_round_trip(pair):
    _, fast = pair
    buffer = io.BytesIO()
    torch.save(fast.state_dict(), buffer)
    buffer.seek(0)
    other = Net()
    other.load_state_dict(torch.load(buffer))
    assert not any("refold" in k for k in fast.state_dict())
    fast.eval()
    with torch.no_grad():
        fast(torch.randn(4, 40))
    ((_, name, cache),) = twin.caches_of(fast)
    assert name == "eval" and cache.values
    cache = copy.deepcopy(cache)
    assert cache.sources == () and cache.values == ()
    assert not any("refold" in name for name in vars(fast))


def test_buffers_that_kernels_write_are_known_to_have_changed(pair):
    module, fast = pair
    eager = copy.deepcopy(module).train()
    fast.train()
    before = {k: b._version for k, b in fast.named_buffers()}
    kept = dict(fast.named_buffers())
    was = {k: b._version for k, b in eager.named_buffers()}
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [torch.randn(9, 40)]) is None
        fast(torch.randn(9, 40))
        eager(torch.randn(9, 40))
    for name, buffer in fast.named_buffers():
        # counted where PyTorch's own are: a backward refuses what was counted since its forward
        counted = eager.get_buffer(name)._version > was[name]
        assert buffer is kept[name] and (buffer._version > before[name]) == counted, name
    assert fast.bn.num_batches_tracked == 1
    # so that what eval mode has folded from them is folded anew
    module.eval(), fast.eval()
    same(module, fast)
    fast.train()
    with torch.no_grad():
        fast(torch.randn(9, 40) * 5)
    module.eval(), fast.eval()
    same(module, fast)


def test_train_and_eval_and_running_statistics(pair):
    module, fast = pair
    for _ in range(3):
        same(module.train(), fast.train())
    same(module.eval(), fast.eval())


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 16, 33, 257])
def test_any_batch_size(pair, rows):
    module, fast = pair
    same(module.eval(), fast.eval(), torch.randn(rows, 40), expect_fast=rows >= 2)


def test_layouts(pair):
    module, fast = pair
    module.eval(), fast.eval()
    same(module, fast, torch.randn(40, 12).t())
    same(module, fast, torch.randn(12, 81)[:, 1::2])
    same(module, fast, torch.randn(1, 40).expand(6, 40))
    same(module, fast, torch.randn(401)[1:].view(10, 40))
    negative = torch._neg_view(torch.randn(9, 40))  # minus what its memory holds
    same(module, fast, negative, expect_fast=False)
    module.fc.weight = nn.Parameter(torch._neg_view(torch.randn(24, 40)))
    same(module, fast, expect_fast=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.double(), "float64"),
        (lambda m: m.fc.register_forward_hook(lambda *a: None), "hooks"),
        (lambda m: setattr(m.bn, "eps", 0.5), "the setting eps of bn"),
        (lambda m: setattr(m, "gain", 3.0), "the setting gain of the model"),
        (lambda m: m.bn.train(), "not in the same mode"),
        (lambda m: setattr(m, "fc", nn.Sequential(m.fc)), "fc is a Sequential"),
        (lambda m: setattr(m, "fc", nn.Linear(40, 24, bias=False)), ""),
    ],
)
def test_what_it_was_not_made_for_takes_the_original_and_says_so(pair, change, words, caplog):
    fast = copy.deepcopy(pair[1].eval())
    twin.state_of(fast).grow = None  # test_forms.py has what gets kernels of its own
    change(fast)
    x = torch.randn(6, 40, dtype=fast.bn.weight.dtype)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")  # a call that falls back raises nothing
        first, again = fast(x), fast(x)
        torch.testing.assert_close(first, Net.forward(fast, x))
    assert torch.equal(first, again)
    said = [m for m in caplog.messages if "original forward" in m]
    assert len(said) <= 1
    assert all(words in s for s in said)
    assert introspect.fallback_reason(fast, [x]) is not None


def test_gradients_are_the_originals(pair):
    module, fast = pair
    x = torch.randn(7, 40, requires_grad=True)
    module.eval(), fast.eval()
    (a,) = torch.autograd.grad(module(x).sum(), x)
    (b,) = torch.autograd.grad(fast(x).sum(), x)
    assert torch.equal(a, b)


def test_inference_mode_and_two_instances(pair):
    module, fast = pair
    module.eval(), fast.eval()
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.fc.weight.add_(1.0)
    fast_other = twin.bind(fast.refold_source, other)
    assert type(fast_other) is type(fast)
    x = torch.randn(8, 40)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(fast_other(x), other(x), rtol=1e-4, atol=1e-5)
    same(module, fast)
    same(other, fast_other)


def test_nan_goes_where_it_went(pair):
    module, fast = pair
    module.eval(), fast.eval()
    x = torch.randn(6, 40)
    x[2, 3], x[4, 1] = float("nan"), float("inf")
    with torch.no_grad():
        got, expected = fast(x), module(x)
    assert torch.equal(got.isfinite(), expected.isfinite())
    assert got[2].isnan().all() and expected[2].isnan().all()


def test_outputs_are_never_reused(pair):
    _, fast = pair
    fast.eval()
    with torch.no_grad():
        first = fast(torch.randn(5, 40))
        kept = first.clone()
        fast(torch.randn(5, 40))
    assert torch.equal(first, kept)


def test_nested_in_another_module(pair):
    module, fast = pair
    outer, expected = nn.Sequential(fast, nn.ReLU()), nn.Sequential(module, nn.ReLU())
    outer.eval(), expected.eval()
    x = torch.randn(4, 40)
    with torch.no_grad():
        torch.testing.assert_close(outer(x), expected(x), rtol=1e-4, atol=1e-5)


class Optional(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 5)

    def forward(self, x, scale=2.0, *, mask=None, flag=False, **more):
        y = self.fc(x) * scale
        return y if mask is None else y * mask


def test_arguments_left_at_their_defaults_are_guarded():
    module = Optional().eval()
    fast = refold.optimize(module, torch.randn(4, 6), measure=False)
    x, mask = torch.randn(3, 6), torch.rand(3, 5)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        for args, kwargs in (
            ((), {}),
            ((3.0,), {}),
            ((2,), {}),
            ((), {"mask": mask}),
            ((), {"flag": True}),
            ((), {"scale": 0.5}),
        ):
            torch.testing.assert_close(fast(x, *args, **kwargs), module(x, *args, **kwargs))


def test_what_cannot_be_captured_is_kept_with_a_reason(monkeypatch):
    class Branches(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    module = Branches()
    monkeypatch.setattr(torch, "compile", lambda call, **_: call)  # Dynamo finds no graph either
    with pytest.warns(UserWarning, match=r"kept: forward needs a tensor.s values"):
        assert refold.optimize(module, torch.randn(3)) is module


def test_a_forward_of_the_instance_is_kept():
    module = nn.Linear(8, 5)
    module.forward = lambda x: nn.Linear.forward(module, x).sum(1)
    with pytest.warns(UserWarning, match=r"kept: the module itself, not its class"):
        assert refold.optimize(module, torch.randn(3, 8)) is module


@pytest.mark.filterwarnings("ignore:refold. the original")
@pytest.mark.parametrize("baselines", [(), ("torch.compile",)], ids=["eager", "torch.compile"])
def test_optimizing_leaves_modes_and_buffers_as_they_were(baselines):
    """Of a model whose first batch norm is frozen while the rest of it trains."""
    norms = nn.BatchNorm1d(32), nn.BatchNorm1d(32)
    module = nn.Sequential(nn.Linear(8, 32), *norms)
    norms[0].eval()
    before = {k: b.clone() for k, b in module.named_buffers()}
    refold.optimize(module, torch.randn(64, 8), target="cpu", baselines=baselines)
    assert module.training and norms[1].training and not norms[0].training
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, before[name])


def test_threads_do_not_change_the_result(pair):
    module, fast = pair
    module.eval(), fast.eval()
    x, threads = torch.randn(300, 40), torch.get_num_threads()
    with torch.no_grad():
        expected = fast(x)
        try:
            torch.set_num_threads(1)
            assert torch.equal(fast(x), expected)
        finally:
            torch.set_num_threads(threads)


def dual(module, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(module(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


def over_weights(module, x):
    weights = torch.stack([module.fc.weight, 2 * module.fc.weight])
    return torch.vmap(lambda w: torch.func.functional_call(module, {"fc.weight": w}, (x,)))(weights)


# what looks at the operations of a call, or changes what they mean: kernels have none to show
TRANSFORMS = {
    "vmap": lambda m, x: torch.vmap(m)(torch.stack([x, 2 * x])),
    "vmap over weights": over_weights,
    "jvp": lambda m, x: torch.func.jvp(m, (x,), (torch.ones_like(x),))[1],
    "jacrev": lambda m, x: torch.func.jacrev(m)(x),
    "forward-mode differentiation": dual,
    "jit.trace": lambda m, x: torch.jit.trace(m, x)(2 * x),
    "compile": lambda m, x: torch.compile(m, backend="eager")(x),
    "export": lambda m, x: torch.export.export(m, (x,)).module()(x),
    "make_fx": lambda m, x: make_fx(m)(x)(2 * x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_see_the_original(pair, name):
    module, fast = (m.eval() for m in pair)
    x, call = torch.randn(9, 40), TRANSFORMS[name]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast(x)  # its folded parameters are there
        torch.testing.assert_close(call(fast, x), call(module, x))
    same(module, fast)


class Named(nn.Module):
    """Its arguments are called as the emitted text's own variables are."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(40, 24)

    def forward(self, n0, cache, folded0, v0, reason=None, sum1=2.0):
        y = torch.relu(self.fc(n0) + cache).sum(-1, keepdim=True) * sum1
        return y + folded0.flip(0).cumsum(0) * v0, self.fc(n0).sum(-1)


def test_arguments_of_any_name():
    module, shapes = Named(), ((40,), (24,), (1,), (1,))
    given = [torch.randn(16, *s) for s in shapes]
    fast = refold.optimize(module, *given, measure=False)
    with torch.no_grad():
        given = [torch.randn(9, *s) for s in shapes]
        assert introspect.fallback_reason(fast, given) is None
        torch.testing.assert_close(fast(*given), module(*given), rtol=1e-4, atol=1e-4)
    fast(*given)[0].sum().backward()
    assert module.fc.weight.grad is not None
