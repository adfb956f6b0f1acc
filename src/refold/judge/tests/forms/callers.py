"""Lives in which somebody stands between the caller and the module: a wrapper that calls forward
itself, a checkpoint, a transform of functions, a class of tensors of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from refold.judge import draws
from refold.judge.draws.trees import differ, tensors
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import (
    DTYPES,
    Seen,
    begin,
    call,
    floating,
    inputs,
    living,
    trained,
)
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status
from refold.judge.worker.steps import Step
from refold.judge.worker.values import KINDS


def _by_name(session: Session) -> Iterator[Life]:
    names = floating(session)
    steps = [*begin(False), call("first", how="by name")]
    if names:
        write = {"do": "write", "names": names, "how": "in place", "factor": 1.25}
        steps += [write, call("after a write", "x1", how="by name"), call("as usual", "x1")]
        steps += [write, call("after another write", "x1", how="by name")]
    yield Life("", tuple(steps), inputs(session), status=Status.STALE_WEIGHTS)


def _real(session: Session) -> Iterator[Seen]:
    """Real numbers where the file has complex ones, if the reference takes them: their other part
    is zero, and what they meet is complex still."""
    given = session.inputs()
    if any(t.is_complex() for t in tensors(given)):
        real = draws.every(given, lambda t: t.real.clone() if t.is_complex() else t)
        steps, status = (*begin(False), call("y")), Status.WRONG_NUMERICS
        one = Life("inputs that are real numbers", steps, {"x0": real}, status=status)
        yield one, life.eager(session, one)


def _kinds(session: Session) -> Iterator[Seen]:
    yield from _real(session)
    if not draws.has_numbers(session.inputs()):
        return
    kinds: list[tuple[str, dict[str, str], list[Step]]] = [
        (f"that are {kind}", {"kind": kind}, []) for kind in KINDS
    ]
    if _moves(session):
        kinds += [("of float64", {"cast": "float64"}, [{"do": "dtype", "to": "float64"}])]
    for case, options, before in kinds:
        steps = [*begin(False), *before, call("y", **options), {"do": "touch", "of": "y"}]
        steps += [call("the same tensors, written to", given_to="y")]
        steps += [call("as usual", cast=options.get("cast", ""))]
        later: Step = {"do": "look", "of": "y", "label": "the output, later"}
        states = inputs(session, 1)
        dtypes = DTYPES if before or "int64" in case else ""
        status = Status.WRONG_NUMERICS
        one = Life(f"inputs {case}", (*steps, later), states, status=status, dtypes=dtypes)
        seen = life.eager(session, one)
        found = seen.seen
        whole = [t for t in tensors(found.get("y", ("", None))[1]) if not t.is_floating_point()]
        if "int64" in case and whole:
            continue  # cut to whole numbers by eager itself: who gives floats has lost nothing
        if later["label"] in found and differ(found["y"][1], found[later["label"]][1]):
            # what the reference gives may be a view of its inputs
            one = replace(one, steps=tuple(steps))
            seen = life.eager(session, one)
        yield one, seen


def _moves(session: Session) -> bool:
    """Whether all floats are float32, and the reference's answer is float64 when they all are."""
    held = (*session.oracle.state().values(), *tensors(session.inputs()))
    if {t.dtype for t in held if t.is_floating_point()} != {torch.float32}:
        return False
    steps = (*begin(False), {"do": "dtype", "to": "float64"}, call("y", cast="float64"))
    seen = life.eager(session, Life("", steps, inputs(session, 1))).seen
    return any(t.dtype is torch.float64 for t in tensors(seen.get("y", ("", None))[1]))


def _transforms(session: Session) -> Iterator[Life]:
    # a weight that is written under a transform is its tensor, and PyTorch ends the process later
    if not draws.has_numbers(session.inputs()) or session.oracle.writes:
        return
    for how in ("grad", "grad of vmap", "vmap of grad"):
        # who has no gradients says so at the backward
        steps = [*begin(False), call("y", grad=True, want=True), {"do": "backward", "of": "y"}]
        steps += [call("gradients", grad=True, how=how), call("as usual", "x1")]
        yield Life(how, tuple(steps), inputs(session))


def _gradients(session: Session, how: str) -> tuple[Step, ...]:
    """Those of a call in a form, and of a plain one behind it."""
    names = trained(session)
    steps = begin()
    for label, form in ((how, how), ("as usual", "")):
        steps += [call(label, grad=True, want=True, how=form)]
        steps += [{"do": "backward", "of": label}]
        of = {"names": names, "label": f"gradients, {label}", "of": label}
        steps += [{"do": "grads", **of}, {"do": "zero"}]
    return tuple(steps)


def _checkpoints(session: Session) -> Iterator[Life]:
    if session.remembers(session.oracle.training):
        return  # what a call that ends early has written by then is nobody's promise
    steps = [*begin(), call("ended", grad=True, want=True, how="ends early")]
    steps += _gradients(session, "inside")[1:]
    yield Life("a call that ends early", tuple(steps), inputs(session, 1))
    # Reentrant ones are left out: where a parameter is an output, their backward never ends.
    if session.alone or not session.quick:  # these import a compiler, for seconds
        yield Life("checkpoint", _gradients(session, "checkpoint"), inputs(session, 1))


def _saved(session: Session) -> Iterator[Life]:
    yield Life("", _gradients(session, "saved elsewhere"), inputs(session, 1))


TESTS: tuple[Test, ...] = (
    living(
        "forward by name",
        "hooks of its own that the answer needs, __call__ in the place of forward",
        "Who wraps a module may call its forward itself; weights are written between.",
        _by_name,
        5,
        lives=1,
    ),
    living(
        "kinds of inputs",
        "results, or memory of outputs, that are kept for inputs of some kind",
        "Inputs that are parameters, inference tensors, of a subclass, in other strides or of "
        "float64, and are written between; real numbers for complex ones.",
        _kinds,
        15,
        lives=5,
    ),
    living(
        "function transforms",
        "gradients that torch.func does not find",
        "torch.func.grad, of a vmap and in a vmap.",
        _transforms,
        10,
        lives=3,
    ),
    living(
        "checkpointed",
        "what a call that ends early leaves behind, state between forward and backward",
        "A call that ends early, as a checkpoint's second one does; without --quick, gradients "
        "by torch.utils.checkpoint.",
        _checkpoints,
        8,
        lives=2,
    ),
    living(
        "saved tensors",
        "what is known by the address of a tensor that autograd saved",
        "Gradients where saved tensors lie elsewhere until the backward, as offloading does.",
        _saved,
        4,
        lives=1,
    ),
)
