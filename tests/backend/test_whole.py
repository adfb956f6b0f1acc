"""refold.optimize of modules that cannot be written out as a file: their graphs, one by one."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

import refold
from refold import api
from refold.backend import whole
from refold.backend.report import Report

from .steps import all_ours


@dataclass
class Cache:
    """What torch.export does not know."""

    seen: list[torch.Tensor] = field(default_factory=list)


class Decoder(nn.Module):
    """Returns what it was given to write to, and branches on a value."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor, cache: Cache | None = None) -> tuple[torch.Tensor, Cache]:
        cache = Cache() if cache is None else cache
        if x.sum() > 1e9:
            x = x * 0
        made = self.down(self.norm(self.up(x)).relu())
        cache.seen.append(made)
        return made, cache


def test_what_pytorch_fails_to_compile_later_runs_as_eager(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its compiler has faults of its own, which other sizes may meet: eager has none there. While a
    twin is made they are a reason to keep the original."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 8))
    other, x = copy.deepcopy(model), torch.randn(6, 8)
    with all_ours():
        fast = refold.optimize(model, x, training=True, measure=False)

    def fails(*_: object, **__: object) -> object:
        raise AttributeError("no python_mod")

    monkeypatch.setattr(whole, "refold", fails)
    for each in (fast, other):  # in double, for which all is compiled anew
        each.double().train()(x.double()).square().sum().backward()
    assert "a graph runs as eager" in caplog.text and "no python_mod" in caplog.text
    for ours, theirs in zip(fast.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    for ours, theirs in zip(fast.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    with pytest.warns(UserWarning, match="torch.compile does not run it"):
        assert refold.optimize(other, x.double(), training=True, measure=False) is other


class Counted(nn.Sequential):
    """Counts, and stops a graph where it is told to."""

    stops = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self[0].num_batches_tracked.add_(1)
        if self.stops:
            torch._dynamo.graph_break()
        return super().forward(x)


@pytest.mark.parametrize("otherwise", (False, True))
def test_a_wrong_call_raises_eagers_own_error_and_counts_once(otherwise: bool) -> None:
    """A last batch of one row is a ValueError of batch norm in train mode."""
    torch.manual_seed(0)
    model, x = Counted(nn.BatchNorm1d(8), nn.Linear(8, 4)), torch.randn(6, 8)
    eager = copy.deepcopy(model)
    if otherwise:
        fast, taken = model, whole.Compiled()
        calls = [lambda x: taken(fast, (), (x,), {}), eager]
    else:
        with all_ours():
            fast = refold.optimize(model, x, training=True, measure=False)
        calls = [fast, eager]
    for batch in (x, x[:1], x, x[:1, :5]):
        raised = []
        for call in calls:
            try:
                call(batch).sum().backward()
                raised.append("")
            except Exception as error:
                raised.append(f"{type(error).__name__}: {error}")
        assert raised[0] == raised[1]
        assert bool(raised[0]) == (len(batch) == 1)
        for key, value in eager.state_dict().items():
            torch.testing.assert_close(model.state_dict()[key], value, rtol=1e-4, atol=1e-5)
    assert fast is model or refold.status(fast).reason == whole._WRONG


def test_what_has_run_before_a_wrong_call_is_found_is_not_run_again() -> None:
    model, taken = Counted(nn.BatchNorm1d(8)), whole.Compiled()
    model.stops = True
    with pytest.raises(RuntimeError, match="more than 1 value per channel"):
        taken(model, (), (torch.randn(1, 8),), {})
    assert model[0].num_batches_tracked == 1


def test_inference() -> None:
    """By keyword, with a class of results that no file can name, and gradients by the original."""
    model = Decoder().eval()
    given = {"x": torch.randn(6, 8), "cache": Cache()}
    with all_ours():
        fast = refold.optimize(model, **given, measure=False)
        assert isinstance(fast, Decoder) and fast is not model
        assert given["cache"].seen == []  # the example was only shown
        assert dict(fast.named_parameters()).keys() == dict(model.named_parameters()).keys()
        with torch.no_grad():
            wanted, _ = model(given["x"])
            made, cache = fast(x=given["x"], cache=Cache())
            assert type(cache) is Cache and cache.seen[0] is made
            torch.testing.assert_close(made, wanted)
            assert refold.status(fast).fast
            model.up.weight.mul_(2)  # nothing is folded in advance
            torch.testing.assert_close(fast(given["x"])[0], model(given["x"])[0])
    assert "_refold_kernels" in fast.refold_source
    fast(given["x"])[0].sum().backward()
    assert model.up.weight.grad is not None
    assert "without training=True" in (refold.status(fast).reason or "")


def test_training() -> None:
    """The twin and its original have the same parameters; steps of both are the same."""
    model, calls = Decoder(), [torch.randn(6, 8), torch.randn(9, 8)]
    eager = copy.deepcopy(model)
    with all_ours():
        fast = refold.optimize(model, calls[0], training=True, measure=False)
        assert all(p.grad is None for p in model.parameters())
        assert model.norm.num_batches_tracked == 0
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, eager)]
        for x in calls:
            for run, optimizer in zip((fast, eager), optimizers, strict=True):
                optimizer.zero_grad()
                run(x)[0].square().sum().backward()
                optimizer.step()
    for a, b in zip(model.state_dict().values(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)


def test_hooks_and_traces_are_seen() -> None:
    """Those of parts, and those of every module, when they come and when they have gone."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Sigmoid())
    x, seen, every = torch.randn(4, 6), [], nn.modules.module.register_module_forward_hook
    with all_ours():
        fast = refold.optimize(model, x, training=True, measure=False)
        assert fast is not model
    torch.testing.assert_close(torch.jit.trace(fast, x)(x), model(x))
    for hook in (
        lambda: model[2].register_forward_hook(lambda part, given, made: seen.append(made)),
        lambda: model[0].register_forward_hook(lambda part, given, made: made * 2),
        lambda: model[2].register_forward_pre_hook(lambda part, given: (given[0] + 1,)),
        lambda: model[2].register_full_backward_hook(lambda *given: seen.append(given)),
        lambda: every(lambda part, given, made: made * 2 if part is model[3] else None),
    ):
        handle, results = hook(), []
        for run in (fast, model):
            model.zero_grad()
            before, result = len(seen), run(x)
            result.square().sum().backward()
            results.append([result, *(p.grad for p in model.parameters()), len(seen) - before])
        handle.remove()
        torch.testing.assert_close(*results)
        torch.testing.assert_close(fast(x), model(x))
    assert torch._dynamo.config.skip_nnmodule_hook_guards  # as it was


def test_copies_and_pickles() -> None:
    model, x = Decoder().eval(), torch.randn(6, 8)
    with all_ours(), torch.no_grad():
        fast = refold.optimize(model, x, measure=False)
        for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
            other.up.weight.mul_(2)
            torch.testing.assert_close(other(x)[0], refold.original(other)(x)[0])
            assert refold.status(other).fast
        torch.testing.assert_close(fast(x)[0], model(x)[0])


def test_where_nothing_is_gained_the_reason_is_told() -> None:
    model, x = Decoder().eval(), torch.randn(6, 8)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert refold.optimize(model, x, measure=False) is model
    (line,) = [str(w.message) for w in told if "refold" in str(w.message)]
    assert "none of its graphs is ours: 2 graphs (inference: " in line and "\n" not in line


class Remembers(nn.Module):
    """In eval mode it keeps a table that it makes of a parameter, as LeViT does of its biases."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.table = nn.Parameter(torch.randn(4, 16))
        self.known: dict[str, torch.Tensor] = {}

    def train(self, mode: bool = True) -> Remembers:
        self.known.clear() if mode else None
        return super().train(mode)

    def bias(self) -> torch.Tensor:
        if self.training:
            return self.table[1]
        if "bias" not in self.known:
            self.known["bias"] = self.table[1]
        return self.known["bias"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down((self.up(x) * 2 + self.bias()).relu()).tanh() * 3


class Renews(Remembers):
    """... and makes it anew at each call, so that only in train mode a file can be written."""

    def bias(self) -> torch.Tensor:
        self.known.clear()
        return super().bias()


def test_a_mode_that_no_file_serves_is_compiled_graph_by_graph() -> None:
    model, x = Renews().eval(), torch.randn(6, 8)
    with all_ours(), torch.no_grad():
        fast = refold.optimize(model, x, measure=False)
        assert fast is not model and not model.known
        for module in (fast, fast.train(), fast.eval()):
            torch.testing.assert_close(module(x), model(x))
            assert refold.status(fast).fast
        assert "bias" in model.known


def test_why_a_mode_is_kept_that_no_file_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told neither when it was optimized nor by its status."""
    told: list[str] = []
    monkeypatch.setattr(api._log, "warning", lambda text, *args: told.append(text % args))

    def none(*args: object) -> tuple[None, Report]:
        return None, Report(())

    monkeypatch.setattr(whole, "by_graphs", none)
    model, x = Renews().eval(), torch.randn(6, 8)
    why = "forward changes the attribute known"
    with torch.no_grad():
        fast = refold.optimize(model, x, measure=False)
        assert any(f"the original forward is kept in eval mode: {why}" in line for line in told)
        for module in (fast, pickle.loads(pickle.dumps(fast))):
            torch.testing.assert_close(module(x), model(x))
            assert why in (refold.status(module).reason or "")
            module.train()
            torch.testing.assert_close(module(x), model(x))
            assert refold.status(module).fast
            module.eval()


def test_what_torch_compile_does_not_run_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("seeded\nfault")

    monkeypatch.setattr(whole, "backward_of", broken)
    model, x = Decoder(), torch.randn(6, 8)
    with pytest.warns(UserWarning, match="torch.compile does not run it: RuntimeError: seeded$"):
        assert refold.optimize(model, x, training=True, measure=False) is model


class Routed(nn.Module):
    """Each expert gets the rows that chose it, in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 2), nn.ModuleList([nn.Linear(8, 8) for _ in "ab"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen, made = self.gate(x).argmax(-1), torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == i)
            if rows.numel():
                made = made.index_add(0, rows, expert(x[rows]))
        return made


def test_where_torch_compile_stops_is_told_and_not_printed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Asked(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                x = x * 2 if x.sum().item() > 0 else x
            return super().forward(x)

    for model, word in ((Routed(), "nonzero"), (Asked(8, 8), "branch|item")):
        with pytest.warns(UserWarning, match="torch.compile makes no graph of it: it stops at"):
            kept = refold.optimize(model.eval(), torch.randn(6, 8), measure=False)
        assert kept is model
        assert re.search(f"({word}).*in a loop", refold.status(kept).reason or "")
    loud = [r for r in caplog.records if r.levelname == "WARNING"]
    assert not [r for r in loud if r.name.startswith("torch._dynamo")]
