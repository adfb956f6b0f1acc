"""What became of each graph that the backend compiled."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

MOST = 1000  # graphs that are remembered


@dataclass(frozen=True)
class GraphReport:
    """One graph.

    kind: "forward", "backward" or "inference". flops: of its products, convolutions and attention,
    at the sizes it was captured with. ours: of these, those that our kernels compute or that the
    algebra took away. by: "refold" where our code runs, else "inductor"; "pytorch" where
    nothing is compiled. reason: why, in one line.
    rules: the names of the rules that were used. seconds, rival: predicted, of ours and of
    Inductor's code. ratio: Inductor's measured time over ours, where both were timed. error: ours
    over eager's against float64, the largest of any result, where it was measured. compiling:
    seconds that our part took, and Inductor's. text: the module that runs, where it is ours.
    parts: how many parts of the graph are ours; 0 where all of it is, or none. kept: whether it was
    found on disk, where another process left it.
    """

    kind: str
    by: str
    reason: str
    flops: float = 0.0
    ours: float = 0.0
    rules: tuple[str, ...] = ()
    seconds: float | None = None
    rival: float | None = None
    ratio: float | None = None
    error: float | None = None
    compiling: tuple[float, float] = (0.0, 0.0)
    text: str | None = field(default=None, repr=False)
    parts: int = 0
    kept: bool = False

    @property
    def share(self) -> float:
        """The share of FLOPs that is ours."""
        return self.ours / self.flops if self.flops else float(self.by == "refold")

    def __str__(self) -> str:
        words = f"{self.kind}: {self.share:.0%} of {self.flops / 1e9:.3g} GFLOP by refold"
        if self.by == "inductor":
            words = f"{self.kind}: all of {self.flops / 1e9:.3g} GFLOP is Inductor's"
        if self.by == "pytorch":
            return f"{self.kind}: PyTorch's own calls ({self.reason})"
        if self.parts and self.by == "refold":
            words += f", in {self.parts} part{'s' * (self.parts > 1)}"
        if self.error is not None and self.by == "refold":
            words += f" with {self.error:.2f} of eager's error"
        told = f"{words} ({self.reason})"
        if self.rules and self.by == "refold":
            told += f"; by {', '.join(self.rules)}"
        if self.kept:
            return f"{told}; found on disk"
        mine, other = self.compiling
        return f"{told}; compiled in {mine:.2g} s + {other:.2g} s of Inductor"


@dataclass(frozen=True)
class Report:
    """What became of the graphs of one model, in the order in which they were compiled. broken: why
    Dynamo ended graphs before the end of forward."""

    graphs: tuple[GraphReport, ...]
    broken: tuple[str, ...] = ()

    def share(self, kind: str | None = None) -> float:
        """The share of FLOPs that is ours, of all graphs or of one kind."""
        chosen = [g for g in self.graphs if kind in (None, g.kind)]
        flops = sum(g.flops for g in chosen)
        return sum(g.ours for g in chosen) / flops if flops else 0.0

    def __str__(self) -> str:
        if not self.graphs:
            why = f"it stops at {self.broken[0]}" if self.broken else "it found nothing to compile"
            return f"torch.compile makes no graph of it: {why}"
        kinds = dict.fromkeys(g.kind for g in self.graphs)
        shares = ", ".join(f"{kind} {self.share(kind):.0%}" for kind in kinds)
        lines = [f"{i}. {graph}" for i, graph in enumerate(self.graphs, 1)]
        return "\n".join([f"share of FLOPs by refold: {shares}", *lines])

    def reasons(self) -> str:
        """The same in a line, for a model of which no graph is ours."""
        if not self.graphs:
            return str(self)
        found = dict.fromkeys(f"{g.kind}: {g.reason}" for g in self.graphs)
        return f"{len(self.graphs)} graphs ({'; '.join(found)})"


_reports: list[GraphReport] = []
_lock = threading.Lock()


def note(report: GraphReport) -> None:
    with _lock:
        _reports.append(report)
        del _reports[:-MOST]


def tell(report: GraphReport, aloud: bool) -> None:
    """Note what became of a graph; aloud: print it, too."""
    note(report)
    if aloud:
        print(f"refold: {report}", flush=True)


def reports() -> Report:
    """What became of the graphs that this process compiled, the last thousand of them."""
    return Report(tuple(_reports))


@contextlib.contextmanager
def collected() -> Iterator[list[GraphReport]]:
    """The graphs that are compiled meanwhile."""
    known = {id(r) for r in _reports}
    found: list[GraphReport] = []
    yield found
    found += [r for r in _reports if id(r) not in known]


@contextlib.contextmanager
def broken() -> Iterator[list[str]]:
    """Why Dynamo ends graphs meanwhile, which it does not print."""
    from torch._dynamo.utils import counters  # which takes long to import

    kinds = "graph_break", "unimplemented"
    known = {why for kind in kinds for why in counters[kind]}
    found: list[str] = []
    with _quiet():
        yield found
    texts = [why for kind in kinds for why in counters[kind] if why not in known]
    in_a_loop = any("graph break in loop" in text.lower() for text in texts)
    words = map(_break_in_a_line, (t for t in texts if "graph break in loop" not in t.lower()))
    loop = ", in a loop, of which it compiles nothing"
    found += (w + loop * in_a_loop for w in dict.fromkeys(words))


def _break_in_a_line(text: str) -> str:
    """What stopped Dynamo, and its first sentence about it."""
    name, *lines = text.strip().splitlines()
    said = (line.partition("Explanation:")[2].strip() for line in lines)
    return f'"{name}": {next(filter(None, said), "no more is known").rstrip(".")}'


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Dynamo's own warnings of graphs that end are not printed."""
    log = logging.getLogger("torch._dynamo")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def explain(model: Any, /, *args: Any, **kwargs: Any) -> Report:
    """Compile a call of a model afresh, run it forward and, where its result wants gradients,
    backward, and tell what became of each graph. Gradients, buffers and the random state of the
    model's device are left as they were.

    model: a module or a function. Where it is what `torch.compile` gave, its options are not known
    and the default ones are used.
    """
    from refold.backend.compile import refold
    from refold.capture import kept
    from refold.capture.generators import torchs_kept

    module = getattr(model, "_orig_mod", model)
    held = kept(module) if isinstance(module, torch.nn.Module) else contextlib.nullcontext()
    parameters = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    gradients = [p.grad for p in parameters]
    with held, torchs_kept(), collected() as found, broken() as stops:
        # a backend and a function that Dynamo has not met
        fresh = torch.compile(again(module), backend=functools.partial(refold))
        backward_of(fresh(*args, **kwargs), parameters, (args, kwargs))
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return Report(tuple(found), tuple(stops))


def backward_of(result: Any, parameters: Sequence[torch.Tensor], arguments: Any) -> None:
    """Take the gradients of a result, where it wants any, and throw them away."""
    leaves = torch.utils._pytree.tree_leaves(result)
    wanted = [t for t in leaves if _wants(t)]
    inputs = [p for p in parameters if p.requires_grad]
    inputs = inputs or [a for a in torch.utils._pytree.tree_leaves(arguments) if _wants(a)]
    if wanted and inputs:
        ones = [torch.ones_like(t) for t in wanted]
        torch.autograd.grad(wanted, inputs, ones, allow_unused=True)


def again(model: Callable[..., Any]) -> Callable[..., Any]:
    """A function that Dynamo has not compiled yet."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    # Dynamo keeps what it compiles with the code
    code = call.__code__.replace()
    return types.FunctionType(code, globals(), "call", None, call.__closure__)


def begun(error: BaseException) -> bool:
    """Had a function of `again` begun to run when Dynamo raised this? Its graphs may have written
    to what they share with others, then. While Dynamo makes the first graph, nothing has run."""
    frames = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return any((c.co_name, c.co_filename) == ("call", again.__code__.co_filename) for c in frames)


def _wants(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
