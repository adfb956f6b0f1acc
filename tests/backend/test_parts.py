"""Parts of a graph are ours, as operators in a graph that Inductor compiles."""

from __future__ import annotations

import copy
import logging
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from refold.backend import choose, loaded, parts, reports
from refold.backend.loaded import Operator, compile_ahead
from refold.backend.report import collected
from refold.measure import Timing

from .steps import all_ours, check, compiled, parts_alone


class Looked(nn.Module):
    """Between a look-up and results that are views: statistics, dropout, and two products."""

    def __init__(self, dropped: float = 0.0) -> None:
        super().__init__()
        self.table, self.first = nn.Embedding(50, 16), nn.Linear(16, 32)
        self.norm, self.second = nn.BatchNorm1d(32), nn.Linear(32, 8)
        self.dropped = dropped

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.gelu(self.norm(self.first(self.table(ids))))
        y = self.second(F.dropout(y, self.dropped))
        return y.softmax(-1), y.t()


def numbers(rows: int = 24, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 50, (rows,), generator=torch.Generator().manual_seed(seed))


def test_steps_of_a_model_in_parts() -> None:
    """What a part gives is read as itself and as a view; statistics are written behind the part
    that reads them."""
    with parts_alone():
        found = check(Looked(), [[numbers(seed=i)] for i in range(3)])
    assert [g.kind for g in found] == ["forward", "backward"]
    assert all(g.parts and g.share == 1 for g in found)
    assert "refold" in str(reports())


def test_what_is_drawn_is_drawn_as_by_inductor() -> None:
    """Random numbers are Inductor's, the products around them ours."""
    model = Looked(dropped=0.5)
    other = copy.deepcopy(model)
    drawn = []
    with all_ours(), parts_alone(), collected() as found:
        for m, run in ((model, compiled(model)), (other, torch.compile(other))):
            torch.manual_seed(3)
            y, turned = run(numbers())
            (y.square().sum() + turned.sum()).backward()
            drawn.append([y, turned, *(p.grad for p in m.parameters())])
    # behind batch norm a bias has no gradient but rounding
    top = max(t.abs().max().item() for t in drawn[1])
    for mine, theirs in zip(*drawn, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6 * top)
    assert all(g.parts and g.share == 1 for g in found), [str(g) for g in found]


def test_sizes_that_vary_in_parts() -> None:
    """One graph each way serves every batch, the operators' results have sizes of the call."""

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.first = nn.Embedding(50, 16), nn.Linear(16, 32)
            self.second = nn.Linear(32, 8)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.second(F.gelu(self.first(self.table(ids))))

    with parts_alone():
        calls = [[numbers(rows, seed=rows)] for rows in (24, 9, 40)]
        found = check(Plain(), calls, made=lambda m: compiled(m, dynamic=True))
    assert [(g.kind, g.share) for g in found] == [("forward", 1.0), ("backward", 1.0)]


def test_a_part_reads_what_is_written_later() -> None:
    """A buffer that a product reads and forward then replaces."""

    class Replaced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 16)
            self.register_buffer("last", torch.zeros(24, 16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.inner(x + self.last)
            with torch.no_grad():
                self.last.copy_(torch.sigmoid(y))
            return y.cumsum(0)

    with parts_alone():
        x = torch.randn(24, 16)
        check(Replaced(), [[x], [x * 2], [x + 1]], kept=None)


def test_a_part_of_many_arguments() -> None:
    """PyTorch's operators take 64 arguments at most; a part of many layers reads more."""

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 8)
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(33))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            y = self.table(ids)
            for layer in self.layers:
                y = torch.tanh(layer(y)) + y
            return y

    with parts_alone():
        model, calls = Deep().eval(), [[numbers(n)] for n in (24, 7, 12)]
        with all_ours(), collected() as found, torch.no_grad():
            run = compiled(model)
            for call in calls:
                torch.testing.assert_close(run(*call), model(*call), rtol=1e-4, atol=1e-5)
    assert all(g.parts and g.share == 1 for g in found), [str(g) for g in found]


def test_no_text_of_all_that_an_operator_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor says what it makes of an operator; written with all that this reads, which doubles
    with each operator in a chain, the compilation of a model of twelve layers came to no end."""
    from torch._inductor import exc

    def whole(target: Any, args: Any, kwargs: Any) -> str:
        raise AssertionError(f"all that {target} reads was written")

    logger = logging.getLogger("torch._inductor.graph")
    before = logger.level
    issue: Any = exc.OperatorIssue
    monkeypatch.setattr(issue, "operator_str", staticmethod(whole))
    logger.setLevel(logging.INFO)
    try:
        with parts_alone():
            found = check(Looked(), [[numbers()]])
    finally:
        logger.setLevel(before)
    assert all(g.parts for g in found)


def test_kernels_of_parts_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once, even if one of them fails; texts that are alike are compiled once."""
    both = threading.Barrier(2)
    seen: list[str] = []

    def compiled_text(text: str, keep: bool) -> None:
        seen.append(text)
        both.wait(timeout=60)  # no one comes alone
        if text == "a":
            raise RuntimeError("it cannot be compiled")

    monkeypatch.setattr(loaded, "load_text", compiled_text)
    monkeypatch.setattr(loaded.os, "sched_getaffinity", lambda _: {0, 1})
    compile_ahead(Operator(name, "(Tensor a0) -> Tensor", 1, name[0]) for name in ("a", "b", "b2"))
    assert sorted(seen) == ["a", "b"]
    compile_ahead([Operator("c", "(Tensor a0) -> Tensor", 1, "c")])
    assert "c" not in seen, "one alone is compiled where it is defined"


class Attention(nn.Module):
    """Attention by products, without a softmax: no pattern of Inductor's makes one call of it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (p.unflatten(-1, (2, 16)).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        y = (q @ k.mT / 40).relu() @ v
        return self.out(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("gains", [True, False])
def test_parts_between_batches_where_all_is_slower(
    monkeypatch: pytest.MonkeyPatch, gains: bool
) -> None:
    """What loses as a whole is tried without its attention, which is Inductor's then."""
    ratios = iter([0.5, 2.0 if gains else 0.9])

    def timed(*args: Any) -> Timing:
        ratio = next(ratios)
        return Timing(1.0, 1 / ratio, ratio, ratio, ratio, 9)

    monkeypatch.setattr(choose, "timed", timed)
    monkeypatch.setattr(parts, "CALLED", -1.0)
    torch.manual_seed(0)
    model, x = Attention(), torch.randn(3, 10, 32)
    with all_ours(), collected() as found, torch.no_grad():
        got = compiled(model, options={"measure": True})(x)
        torch.testing.assert_close(got, model(x))
    assert next(ratios, None) is None
    (graph,) = found
    second = "measured 2.00" if gains else "measured 0.90"
    assert graph.reason.startswith(second), graph.reason
    assert "with them measured 0.50" in graph.reason
    assert (graph.by, graph.parts) == (("refold", 2) if gains else ("inductor", 0))
    assert not gains or 0 < graph.share < 1


class Blocks(nn.Module):
    """Equal blocks, between which numbers are sorted: that is a call of PyTorch's."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)) for _ in range(count)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).sort(-1).values
        return x


def test_equal_parts_are_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are derived, compiled and measured once, each with weights of its own."""
    derived, measured = [], []
    derive, of = parts.derive, choose._Check.of

    def counted(graph: torch.fx.Graph, options: Any) -> Any:
        derived.append(graph)
        return derive(graph, options)

    def also_counted(self: Any, module: Any, run: Any, names: Any = None) -> Any:
        measured.append(names)
        return of(self, module, run, names)

    monkeypatch.setattr(parts, "derive", counted)
    monkeypatch.setattr(choose._Check, "of", also_counted)
    torch.manual_seed(0)
    model, x = Blocks(5), torch.randn(7, 16)
    with parts_alone(), all_ours(), collected() as found, torch.no_grad():
        got = compiled(model)(x)
        torch.testing.assert_close(got, model(x))
    (graph,) = found
    assert graph.parts == 5 and graph.share == 1
    assert len(derived) == len(measured) == 1
    assert len(measured[0]) == 4, "weights and biases are known as such"
