"""Training steps of a model beside the same of a copy that runs eagerly, and of one in float64."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from refold.backend import GraphReport, graphs, parts, refold
from refold.backend import choose as backend
from refold.backend.report import collected

Loss = Callable[[Any], torch.Tensor]


def squares(result: Any) -> torch.Tensor:
    """A loss for results of any form."""
    leaves = torch.utils._pytree.tree_leaves(result)
    floats = [t for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]
    return sum((t.double().square().mean() for t in floats), torch.zeros((), dtype=torch.float64))


@contextmanager
def all_ours() -> Iterator[None]:
    """Every graph that can be read is ours, whether it gains or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "WORTH", 0.0)
        yield


@contextmanager
def parts_alone() -> Iterator[None]:
    """No graph is ours whole; each part that can be is."""

    def declined(*args: Any) -> graphs.Derived:
        raise graphs.Declined("not whole")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "derive", declined)
        patch.setattr(parts, "CALLED", -1.0)
        yield


def compiled(model: Any, **settings: Any) -> Any:
    """A model behind a backend that Dynamo has not met; nothing is timed."""
    options = {"measure": False, **settings.pop("options", {})}
    return torch.compile(model, backend=functools.partial(refold, options=options), **settings)


def check(
    model: torch.nn.Module,
    calls: Sequence[Sequence[Any] | Mapping[str, Any]],
    loss: Loss = squares,
    made: Callable[[torch.nn.Module], Any] = compiled,
    kept: int | None = 0,
    yardstick: bool = False,
) -> list[GraphReport]:
    """Run steps of SGD on each call in turn, compiled and eagerly, and compare results, losses,
    gradients of parameters and of inputs, buffers and the parameters afterwards.

    Errors against float64 may be four times eager's, and 1e-6 of the largest beside. kept: how many
    graphs may be Inductor's; None for any number. yardstick: gradients that are nothing but
    rounding, as of a bias before batch norm, may have four times the error of the graph by
    PyTorch's own calls.
    Gives what became of the graphs.
    """
    sides = [model, copy.deepcopy(model), copy.deepcopy(model).double()]
    sides += [copy.deepcopy(model)] if yardstick else []
    with all_ours(), collected() as found:
        runs = [made(sides[0]), sides[1], sides[2], *map(by_calls, sides[3:])]
        optimizers = [torch.optim.SGD(s.parameters(), lr=0.05, momentum=0.9) for s in sides]
        for call in calls:
            seen = []
            for run, side, optimizer in zip(runs, sides, optimizers, strict=True):
                double = side is sides[2]
                named = isinstance(call, Mapping)
                args = [_copied(a, double) for a in (call.values() if named else call)]
                given = dict(zip(call, args, strict=True)) if named else {}
                value = loss(run(**given) if named else run(*args))
                optimizer.zero_grad()
                value.backward()
                inputs = [a.grad for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
                gradients = [p.grad for p in side.parameters()]
                seen.append([value.detach(), *inputs, *(_taken(g) for g in gradients)])
                optimizer.step()
            alike(*seen)
        alike(*([*s.parameters(), *s.buffers()] for s in sides))
    theirs = [str(g) for g in found if g.by != "refold"]
    assert found
    assert kept is None or len(theirs) <= kept, theirs
    return found


def _copied(value: Any, double: bool) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    made = value.detach().clone(memory_format=torch.preserve_format)
    made = made.double() if double and made.is_floating_point() else made
    return made.requires_grad_(value.requires_grad)


def _taken(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else gradient.clone()


def by_calls(model: torch.nn.Module) -> Any:
    """The graph that kernels compute, by PyTorch's own calls."""
    return torch.compile(model, backend="aot_eager_decomp_partition", dynamic=True)


def alike(
    ours: Sequence[Any], eager: Sequence[Any], exact: Sequence[Any], graph: Sequence[Any] = ()
) -> None:
    """Compare by float64; what is None has to be None on all sides. graph: by `by_calls`."""
    assert len(ours) == len(eager) == len(exact)
    tops = [t.abs().max().item() for t in exact if t is not None and t.is_floating_point()]
    for i, (mine, other, truth) in enumerate(zip(ours, eager, exact, strict=True)):
        if truth is None or mine is None or other is None:
            assert mine is None and other is None and truth is None, i
            continue
        assert mine.dtype == other.dtype and mine.shape == other.shape, i
        if not truth.is_floating_point():
            assert torch.equal(mine, other), i
            continue
        error, own = ((t.double() - truth).abs().max().item() for t in (mine, other))
        scale = truth.abs().max().item()
        if graph and scale < 1e-9 * max(tops):  # nothing but rounding
            own = max(own, (graph[i].double() - truth).abs().max().item())
        assert error <= 4 * own + 1e-6 * scale + 1e-9 * max(tops), (i, error, own, scale)
