"""What kind of task a reference is, and results counted by kind.

A speed-up of a model whose output does not depend on its input, or whose layers fold into one, says
nothing about models that cannot be folded. The kind is a property of the reference, found by
running it in float64; it asks no optimizer.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import INITIAL
from refold.judge.verdict.verdict import Task, Verdict

ORDINARY, FOLDABLE, DEGENERATE = "ordinary", "foldable", "degenerate"
_REDUCTIONS = frozenset(
    {"sum", "mean", "prod", "amax", "amin", "max", "min", "logsumexp", "softmax", "log_softmax"}
    | {"norm", "vector_norm", "cumsum", "median", "argmax", "argmin", "nansum", "nanmean"}
)
_STEPS = (0.3, -1.7)  # along a line through two inputs, and beyond one: relu is not affine there


@dataclass(frozen=True)
class Row:
    """One kind of task: how many, how many accepted, their speed-ups' geometric mean (or nan)."""

    tasks: int
    accepted: int
    speedup: float


def tally(verdicts: Iterable[Verdict]) -> dict[str, Row]:
    """Results by kind of task; speed-ups of accepted and timed candidates only."""
    rows: dict[str, Row] = {}
    held = list(verdicts)
    for kind in (ORDINARY, FOLDABLE, DEGENERATE):
        chosen = [v for v in held if v.task.kind == kind]
        logs = [math.log(v.timing.ratio) for v in chosen if v.accepted and v.timing is not None]
        mean = math.exp(sum(logs) / len(logs)) if logs else math.nan
        rows[kind] = Row(len(chosen), sum(v.accepted for v in chosen), mean)
    return rows


class _Record(TorchFunctionMode):
    """Counts what computes, and lists reductions over one element."""

    def __init__(self) -> None:
        super().__init__()
        self.computed = 0
        self.single: list[str] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        first = args[0] if args else None
        if isinstance(first, torch.Tensor):
            inside = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
            fresh = [t for t in tensors(result) if t.untyped_storage().data_ptr() not in inside]
            self.computed += bool(fresh)
            name = getattr(func, "__name__", "")
            if name in _REDUCTIONS and _elements(first, args, kwargs) == 1:
                self.single.append(name)
        return result


@contextlib.contextmanager
def _recorded(model: torch.nn.Module, record: _Record) -> Iterator[None]:
    """The record sees what the model's own forward does, and nothing around it."""
    inside = contextlib.ExitStack()
    hooks = (
        model.register_forward_pre_hook(lambda *_: inside.enter_context(record) and None),
        model.register_forward_hook(lambda *_: inside.close()),
    )
    try:
        yield
    finally:
        inside.close()
        for hook in hooks:
            hook.remove()


def _elements(tensor: torch.Tensor, args: Any, kwargs: Any) -> int:
    """How many elements a reduction reduces to one; 0 where there are none."""
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if isinstance(dim, torch.Tensor) or not tensor.numel():
        return 0
    if isinstance(dim, int) and not isinstance(dim, bool):
        dim = (dim,)
    if not isinstance(dim, list | tuple) or not dim or not tensor.dim():
        return tensor.numel()
    return math.prod(tensor.shape[d] for d in dim)


def classify(session: Session) -> Task:
    """The kind of the session's reference. Costs a few runs of it."""
    inputs = session.cut(session.file_inputs())
    reasons: list[str] = []
    record = _Record()
    try:
        session.oracle_enter(INITIAL)
        with _recorded(session.oracle.model, record):
            session.oracle.eager(inputs, session.oracle.training, session.seed)
        if record.single:
            reasons.append(f"reductions over one element: {', '.join(record.single)}")
        if draws.has_floats(inputs):
            kind = _shape_of(session, inputs, record.computed, reasons)
            if kind != ORDINARY:
                return Task(kind, tuple(reasons))
    except Exception as error:  # a classification is no judgement
        reasons.append(f"not classified further: {type(error).__name__}: {str(error)[:100]}")
    return Task(DEGENERATE if record.single else ORDINARY, tuple(reasons))


def _shape_of(session: Session, inputs: list[Any], computed: int, reasons: list[str]) -> str:
    """Degenerate where the output is the same for any input, foldable where it is affine in it."""
    # Where a run takes long, float32 must do: kinds lie further apart than its errors.
    run = session.oracle.eager if session.frugal else session.oracle.exact
    close = 1e-4 if session.frugal else 1e-9

    def outputs(given: list[Any]) -> list[torch.Tensor]:
        found = tensors(run(given, session.oracle.training, session.seed).outputs)
        return [t.double().to(session.device) for t in found if t.is_floating_point()]

    a = draws.normal(inputs, 1.0, session.seed + 6000)
    b = draws.normal(inputs, 1.0, session.seed + 6001)
    at_a, at_b = outputs(a), outputs(b)
    if not at_a or not all(bool(torch.isfinite(t).all()) for t in (*at_a, *at_b)):
        return ORDINARY
    scales = [
        max(float(torch.maximum(p.abs(), q.abs()).max()), 1e-300) for p, q in _pairs(at_a, at_b)
    ]
    gaps = [
        float((p - q).abs().max()) / s for (p, q), s in zip(_pairs(at_a, at_b), scales, strict=True)
    ]
    if max(gaps, default=1.0) <= close:
        reasons.append("the output does not depend on the input")
        return DEGENERATE
    if not session.oracle.bytes or computed < 2:
        return ORDINARY
    for t in _STEPS:
        mixed = [_mix(p, q, t) for p, q in zip(a, b, strict=True)]
        if session.frugal:
            mixed = draws.mapped(mixed, lambda m: m.to(_dtype(a)))
        for got, (p, q), scale in zip(outputs(mixed), _pairs(at_a, at_b), scales, strict=True):
            if float((got - (t * p + (1 - t) * q)).abs().max()) > 10 * close * scale:
                return ORDINARY
    reasons.append(f"affine in its input through {computed} operations: they fold into the weights")
    return FOLDABLE


def _dtype(inputs: list[Any]) -> torch.dtype:
    return next(t.dtype for t in tensors(inputs) if t.is_floating_point())


def _pairs(a: list[torch.Tensor], b: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(p, q) for p, q in zip(a, b, strict=True) if p.numel()]


def _mix(a: Any, b: Any, t: float) -> Any:
    if isinstance(a, torch.Tensor):
        return t * a.double() + (1 - t) * b.double() if a.is_floating_point() else a
    if isinstance(a, list | tuple):
        return type(a)(_mix(p, q, t) for p, q in zip(a, b, strict=True))
    if isinstance(a, dict):
        return {k: _mix(v, b[k], t) for k, v in a.items()}
    return a
