"""Calls of other forms than the example's, members of enumerations, options beside arguments."""

from __future__ import annotations

import copy
import enum
import pickle

import pytest
import torch
import torch.utils.flop_counter
from torch import nn

import refold
from refold import api, growth, pipeline, twin

WIDTH = 64


class Options(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask=None, *, scale=1.0):
        y = self.fc(x)
        if mask is not None:
            y = y * mask
        return y.sum(dim=-1, keepdim=True) * scale


def test_other_forms_of_call_get_kernels_when_they_first_come(caplog, monkeypatch):
    monkeypatch.setattr(growth, "MOST", 4)
    fast = refold.optimize(Options().eval(), torch.randn(4, WIDTH), measure=False)
    original = twin.original(fast)
    x, mask = torch.randn(5, WIDTH), torch.rand(5, WIDTH)
    calls = [((x,), {}), ((x, mask), {}), ((x,), {"mask": mask}), ((torch.stack([x, x]),), {})]
    with torch.no_grad():
        for args, kwargs in calls:
            torch.testing.assert_close(fast(*args, **kwargs), original(*args, **kwargs))
            assert refold.status(fast).fast, refold.status(fast)
        assert len(twin.state_of(fast).programs) == 3
        assert sum("another form" in m for m in caplog.messages) == 2
        for args, kwargs in calls:  # and keep them
            fast(*args, **kwargs)
            assert refold.status(fast).fast
        with torch.inference_mode():
            torch.testing.assert_close(fast(x * 1, scale=2.0), original(x, scale=2.0))
        for scale in (3.0, 4.0, 5.0, 6.0):
            torch.testing.assert_close(fast(x, scale=scale), original(x, scale=scale))
    assert len(twin.state_of(fast).programs) <= 5
    again = pickle.loads(pickle.dumps(fast))
    with torch.no_grad():
        torch.testing.assert_close(again(x, mask), original(x, mask))
        assert refold.status(again).fast


def test_what_kernels_do_not_take_runs_compiled_where_that_was_asked(monkeypatch):
    """Not under transforms and tracers, and so in copies, too."""
    compiled = []

    def compile(call):
        compiled.append(0)

        def run(*args, **kwargs):
            compiled[-1] += 1
            return call(*args, **kwargs)

        return run

    monkeypatch.setattr(torch, "compile", compile)
    model, x = Options().eval(), torch.randn(4, WIDTH)
    fast = refold.optimize(model, x, measure=False, otherwise="compile")
    for made in (fast, pickle.loads(pickle.dumps(fast))):
        compiled.clear()
        with torch.no_grad():
            made(x)
        assert refold.status(made).fast and not compiled
        for _ in range(2):
            torch.testing.assert_close(made(x), model(x))
            assert not refold.status(made).fast
        with torch.no_grad():
            torch.func.vmap(made)(x[:, None])
        assert compiled == [2]


def test_examples_of_several_forms():
    x, mask = torch.randn(5, WIDTH), torch.rand(5, WIDTH)
    fast = refold.optimize(Options().eval(), examples=[(x,), ((x,), {"mask": mask})], measure=False)
    with torch.no_grad():
        for args, kwargs in (((x,), {}), ((x,), {"mask": mask})):
            expected = twin.original(fast)(*args, **kwargs)
            torch.testing.assert_close(fast(*args, **kwargs), expected)
            assert refold.status(fast).fast
    assert len(twin.state_of(fast).programs) == 2


def test_kernels_for_another_form_are_made_beside_other_threads_calls(monkeypatch):
    """The module itself is never set to train mode meanwhile, nor are its buffers written."""
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 1))
    fast = refold.optimize(module.eval(), torch.randn(4, WIDTH), measure=False)
    before, modes, run = copy.deepcopy(module.state_dict()), set(), pipeline.run

    def noting(made, *rest, **more):
        made.train()(torch.randn(4, WIDTH))
        modes.update(m.training for m in live)
        made.eval()
        return run(made, *rest, **more)

    live = list(module.modules())
    monkeypatch.setattr(pipeline, "run", noting)
    with torch.no_grad():
        fast(torch.randn(1, WIDTH))
    assert modes == {False} and len(twin.state_of(fast).programs) == 2
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("apart", ["vmap", "jvp", "autocast", "a subclass", "a mode"])
def test_a_call_that_no_program_takes_makes_no_kernels_and_leaves_its_form(apart):
    """The call of that form that comes behind it gets its kernels."""
    fast = refold.optimize(Options().eval(), torch.randn(4, WIDTH), measure=False)
    known, x = copy.deepcopy(twin.original(fast)), torch.randn(1, WIDTH)
    calls = {
        "vmap": lambda m: torch.func.vmap(m)(x[:, None]),
        "jvp": lambda m: torch.func.jvp(m, (x,), (x,))[1],
        "autocast": lambda m: _within(torch.autocast("cpu", torch.bfloat16), m, x),
        "a subclass": lambda m: m(x.as_subclass(_Own)).as_subclass(torch.Tensor),
        "a mode": lambda m: _within(torch.utils.flop_counter.FlopCounterMode(display=False), m, x),
    }
    with torch.no_grad():
        torch.testing.assert_close(calls[apart](fast), calls[apart](known))
        assert len(twin.state_of(fast).programs) == 1
        torch.testing.assert_close(fast(x), known(x))
        assert refold.status(fast).fast, refold.status(fast)


class _Own(torch.Tensor):
    pass


def _within(context, module, x):
    with context:
        return module(x)


def test_training_makes_no_kernels_for_its_calls():
    fast = refold.optimize(Options(), torch.randn(4, WIDTH), measure=False)
    fast(torch.randn(5, WIDTH), torch.rand(5, WIDTH)).sum().backward()
    assert len(twin.state_of(fast).programs) == 1


class Side(enum.Enum):
    LEFT = "left"
    RIGHT = "right"


class Place(enum.Flag):
    TOP = 1
    END = 2


class Sided(nn.Module):
    """Members of enumerations come in and go out."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, 8)

    def forward(self, x, side=Side.LEFT, place=Place.TOP | Place.END):
        y = self.fc(x) if side is Side.LEFT else self.fc(-x)
        return (y * 2 if Place.END in place else y), side, place


def test_members_of_enumerations():
    module = Sided().eval()
    known = copy.deepcopy(module)
    x = torch.randn(3, WIDTH)
    fast = refold.optimize(module, x, Side.RIGHT, measure=False)
    with torch.no_grad():
        for args in ((x, Side.RIGHT), (x, Side.RIGHT, Place.TOP), (x, Side.RIGHT)):
            got, expected = fast(*args), known(*args)
            torch.testing.assert_close(got[0], expected[0])
            assert got[1:] == expected[1:]
            assert refold.status(fast).fast


# --- options beside arguments -------------------------------------------------------------------
class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, target: torch.Tensor | None = None) -> torch.Tensor:
        y = torch.relu(self.fc(x))
        return y if target is None else (y - target).square().mean()


def test_options_and_arguments_of_one_name():
    module = Named()
    options, rest = api._split(module, {"target": 1, "strict": True, "refold_target": "cpu"})
    assert (options["target"], options["strict"], rest) == ("cpu", True, {"target": 1})
    given = [
        (torch.randn(4, 6),),
        {"x": torch.randn(4, 6)},
        ((torch.randn(4, 6),), {"target": torch.randn(4, 6)}),
        torch.randn(4, 6),
    ]
    found = api._examples(module, (), {}, given)
    assert [(len(e.args), list(e.kwargs)) for e in found] == [
        (1, []),
        (0, ["x"]),
        (1, ["target"]),
        (1, []),
    ]


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((1, 2, 3), {}, "no call of forward: too many positional"),
        ((1,), {"tarket": "cpu"}, "unexpected keyword argument 'tarket'.*options of optimize"),
        ((1,), {"examples": [(1,)]}, "got both"),
        ((), {"examples": []}, "got none"),
    ],
)
def test_a_wrong_example_raises(args, kwargs, words):
    with pytest.raises(pipeline.OptimizeError, match=words):
        refold.optimize(Named(), *args, **kwargs)


def test_a_tuple_of_all_arguments_is_told():
    with pytest.raises(pipeline.OptimizeError, match="one by one, not as a tuple"):
        refold.optimize(nn.Bilinear(2, 3, 4), (torch.ones(5, 2), torch.ones(5, 3)))


def test_a_lazy_parameter_is_told_and_works_after_a_call():
    module, x = nn.Sequential(nn.LazyLinear(8), nn.ReLU()).eval(), torch.ones(3, 4)
    with pytest.raises(pipeline.OptimizeError, match="call the module once before"):
        refold.optimize(module, x)
    module(x)
    with torch.no_grad():
        torch.testing.assert_close(refold.optimize(module, x, measure=False)(x), module(x))


# --- buffers of one row -------------------------------------------------------------------------
class OneRow(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("ids", torch.arange(6)[None])
        self.register_buffer("shift", torch.randn(1, 1, 6))
        self.table = nn.Embedding(6, 6)

    def forward(self, x):
        same = self.table(self.ids.expand(1, 6)) + self.table(self.ids.expand(5, 6))
        return torch.relu(self.fc(x)) + same + self.shift.expand(5, 6, 6).mT + self.shift.sum()


def test_a_buffer_whose_first_size_is_one():
    module = OneRow().eval()
    known, x = copy.deepcopy(module), torch.randn(5, 6, 6)
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), known(x))
    assert refold.status(fast).fast


class Labelled(nn.Module):
    """As classifiers of a library do, forward notes at the first call with labels what they are."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)
        self.config = {"problem": None, "gain": 2.0}

    def forward(self, x, labels=None):
        y = torch.relu(self.fc(x)) * self.config["gain"]
        if labels is None:
            return y
        if self.config["problem"] is None:
            self.config["problem"] = "regression"
        return y, (y - labels).square().mean()


def test_settings_that_were_changed_and_stay_get_kernels(caplog):
    model = Labelled().eval()
    x = torch.randn(4, WIDTH)
    fast = refold.optimize(model, x, measure=False)
    original = twin.original(fast)
    fast(x, labels=x)  # with gradients, by the original
    assert model.config["problem"] == "regression"
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), original(x))
        assert refold.status(fast).fast, refold.status(fast)
        fast.config["gain"] = 3.0
        for _ in range(3):
            torch.testing.assert_close(fast(x), original(x))
        assert refold.status(fast).fast, refold.status(fast)
        fast.config["gain"] = 2.0  # and what was before has its kernels still
        torch.testing.assert_close(fast(x), original(x))
        assert refold.status(fast).fast, refold.status(fast)
    assert sum("settings were changed" in m for m in caplog.messages) == 2


def test_settings_that_change_at_each_call_get_none(caplog):
    model = Labelled().eval()
    x = torch.randn(4, WIDTH)
    fast = refold.optimize(model, x, measure=False)
    with torch.no_grad():
        for said in "abcdef":  # numbers would vary
            fast.config["problem"] = said
            torch.testing.assert_close(fast(x), twin.original(fast)(x))
            assert not refold.status(fast).fast
    assert not any("settings were changed" in m for m in caplog.messages)


def test_other_changes_of_a_module_get_none(caplog):
    model = Labelled().eval()
    x = torch.randn(4, WIDTH)
    fast = refold.optimize(model, x, measure=False)
    fast.fc.register_forward_hook(lambda module, args, made: made + 1)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), twin.original(fast)(x))
            assert not refold.status(fast).fast
    assert not any("kernels are made" in m for m in caplog.messages)


class Cut(nn.Module):
    """Sizes decide how far what is made of an image is padded, so that they are fixed."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 2)

    def forward(self, x):
        y = torch.relu(self.conv(x)).repeat_interleave(2, 2).repeat_interleave(2, 3)
        wide, high = x.shape[3] - y.shape[3], x.shape[2] - y.shape[2]
        return torch.sigmoid(nn.functional.pad(y, [wide // 2, wide - wide // 2, 0, high])) * 2


def test_other_sizes_than_the_fixed_ones_get_kernels_when_they_come_again(caplog):
    model = Cut().eval()
    fast = refold.optimize(model, torch.randn(2, 3, 33, 31), measure=False)
    taken = []
    with torch.no_grad():
        for high, wide in ((40, 44), (35, 35), (40, 44), (40, 44), (33, 31), (40, 44)):
            x = torch.randn(2, 3, high, wide)
            torch.testing.assert_close(fast(x), model(x))
            taken.append(refold.status(fast).fast)
    assert taken == [False, False, False, True, True, True]
    assert sum("kernels are made" in m for m in caplog.messages) == 1


def test_calls_with_gradients_are_not_asked_for_settings(monkeypatch):
    """A training loop goes by the original: what each call costs there is the loop's."""
    model = Labelled().eval()
    x = torch.randn(4, WIDTH)
    fast = refold.optimize(model, x, measure=False)
    asked = []
    monkeypatch.setattr(growth, "changed", lambda *given: asked.append(given) or "")
    fast.config["gain"] = 3.0
    fast(x).sum().backward()
    assert not asked
    with torch.no_grad():
        fast(x)
    assert asked
