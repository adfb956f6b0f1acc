"""Calls under weights that no ordinary draw makes: zeros, one tensor of another size, one NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule import beside, compare
from refold.judge.tests.backward.far import KINKS, turning
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.lives.common import begin, call, floating, inputs, living, trained
from refold.judge.tests.once.hostile import LARGE, ZEROS
from refold.judge.truth import runs
from refold.judge.truth.oracle import Oracle
from refold.judge.truth.power import has_power
from refold.judge.truth.truth import Truth
from refold.judge.verdict.life import Life
from refold.judge.verdict.room import starving
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import PERTURBED
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire.host import Raised
from refold.judge.worker.steps import Step

_SCALES = (2.0**-12, 2.0**12)
_SHIFT, _FAR = 2.0**8, 2.0**10
_APART = 2.0**7  # times the usual size of a parameter: squares of its numbers cancel, they do not
_TENSORS = 4  # of which each is tried alone
_INFINITE = 2  # likewise
_VALUES = {"NaN": float("nan"), "infinity": float("inf")}
_WANTING = "with gradients"
_SHOWS = {"NaN": torch.isnan, "infinity": torch.isinf}


def _parameters(session: Session, buffers: bool = False) -> list[str]:
    found = floating(session, buffers=False)[:_TENSORS]
    if buffers:
        found += floating(session, parameters=False)[:_TENSORS]
    if not found:
        raise Skip("no floating parameters")
    return found


def _sizes(session: Session) -> Iterator[Failure]:
    given, start, before = session.inputs(), session.state(PERTURBED), session.cases
    parameters = dict(session.oracle.model.named_parameters())
    for name in _parameters(session, buffers=True):
        changes = {f"{name} x {scale:g}": start[name] * scale for scale in _SCALES}
        if start[name].dim() == 1:  # what is added to each channel: large terms cancel behind it
            changes[f"{name} + {_SHIFT:g}"] = start[name] + _SHIFT
        elif name in parameters and start[name].dim():  # it may be standardized itself
            changes[f"{name} + {_APART:g} times its size, either sign"] = _apart(start[name])
        # running statistics are what counts in eval mode
        mode = None if name in parameters else False
        tried = [(case, changed, given, mode) for case, changed in changes.items()]
        if name not in parameters and start[name].dim() == 1 and draws.has_numbers(given):
            case = f"{name} and inputs + {_FAR:g}"  # what is learnt of such inputs is as far
            far = draws.valued(given, lambda t: t + _FAR)
            tried.append((case, start[name] + _FAR, far, None))
        for case, changed, asked, mode in tried:
            session.add_state("sized", {**start, name: changed})
            session.entered("")  # the worker has the last one of that name
            truth = session.truth(asked, "sized", mode)
            if truth.eager is None or not runs.mostly_finite(truth.eager.outputs):
                continue
            if has_power(truth):
                own = {"state": "sized", "training": mode, "limit": True}
                yield from session.check(case, asked, **own)  # type: ignore[arg-type]
    if session.cases == before:
        raise Skip("eager keeps its digits under none of them")


def _nan(session: Session) -> Iterator[Failure]:
    before = session.cases
    parameters = dict(session.oracle.model.named_parameters())
    names = _parameters(session, buffers=True)
    for name in names:
        # running statistics are what counts in eval mode
        yield from _one(session, name, "NaN", None if name in parameters else False)
    for name in [n for n in names if n in parameters][:_INFINITE]:
        yield from _one(session, name, "infinity", None)
    if session.cases == before:
        raise Skip("the reference gives NaN for no NaN in a weight")


def _one(session: Session, name: str, what: str, mode: bool | None) -> Iterator[Failure]:
    """One element of a tensor that is no number: what of that eager shows is shown."""
    given, start = session.inputs(), session.state(PERTURBED)
    changed = start[name].clone(memory_format=torch.contiguous_format)
    changed.view(-1)[changed.numel() // 2] = _VALUES[what]
    session.add_state("one nan", {**start, name: changed})
    session.entered("")
    truth = session.truth(given, "one nan", mode)
    if truth.eager is None or not _has(truth.eager.outputs, what):
        return
    try:
        outputs = session.call(given, "one nan", training=mode)["outputs"]
    except Raised as error:
        session.assumptions.add(f"{session.test}: raises where the reference answers")
        session.notes.append(f"{session.test}: {name}: raised {str(error)[:200]}")
        return
    session.cases += 1
    wrong = _wrong(outputs, _known(truth), what)
    if wrong[0] and session.device.type == "cuda":
        wrong = _wrong(outputs, [*_known(truth), *_on_the_cpu(session, truth)], what)
    lost, more = wrong
    if lost and session.finite_only:
        session.assumptions.add(f"finite: {what} among the weights is lost")
    elif lost and what == "NaN" and _by_zeros(session, name, mode, outputs, truth):
        session.assumptions.add(ZEROS)
    elif lost:
        detail = f"{lost} values are ordinary where eager's and float64's are {what}"
        yield session.fail(Status.WRONG_NUMERICS, f"one {what} in {name}", detail)
    elif more:
        # an honest scale of a whole tensor is NaN then, and zero times NaN of an honest relu
        words = f"{more} values are NaN where neither eager's nor float64's are"
        session.notes.append(f"{session.test}: {name}: {words}")


def _by_zeros(session: Session, name: str, mode: bool | None, outputs: Any, truth: Truth) -> bool:
    """Whether zeros alone multiply it where it does not show, as those of a mask that drops rows:
    see `hostile`. Large numbers in its place change no bit there, and are right everywhere."""
    assert truth.eager is not None
    given, start = session.inputs(), session.state(PERTURBED)
    pairs = list(zip(tensors(outputs), tensors(truth.eager.outputs), strict=True))
    hidden = [torch.isnan(e) & torch.isfinite(m) for m, e in pairs]
    for value in LARGE:
        changed = start[name].clone(memory_format=torch.contiguous_format)
        changed.view(-1)[changed.numel() // 2] = value
        session.add_state("one nan", {**start, name: changed})
        session.entered("")
        known = session.truth(given, "one nan", mode)
        reply = session.call(given, "one nan", training=mode)["outputs"]
        same = zip(tensors(reply), tensors(outputs), hidden, strict=True)
        if any(bool((a != m)[at].any()) for a, m, at in same) or not session.agrees(reply, known):
            return False
    return True


def _known(truth: Truth) -> list[Any]:
    """Outputs of eager and of float64. A library may multiply what is no number by the zeros that
    it pads with, so that eager shows it where mathematics does not: there a candidate is free."""
    exact = truth.exact  # first: eager's own jumps are taken out with it
    return [run.outputs for run in (truth.eager, exact) if run is not None]


def _on_the_cpu(session: Session, truth: Truth) -> list[Any]:
    """Outputs of the same call on a CPU: of a device float64 may spread what is no number, too."""
    try:
        twin = Oracle(session.reference, session.seed, torch.device("cpu"))
        twin.load(session.state(truth.state))
        return [twin.exact(truth.inputs, truth.training, session.seed + 7).outputs]
    except Exception as error:  # it does not run there
        if starving(error):
            raise
        return []


def _has(outputs: Any, what: str) -> bool:
    return any(inexact(t) and bool(_SHOWS[what](t).any()) for t in tensors(outputs))


def _wrong(outputs: Any, known: list[Any], what: str) -> tuple[int, int]:
    """How many values are others where all that is known has NaN, or finite where all of it is
    infinite; and how many are NaN where nothing of it is. (One infinity may become NaN on the way
    to others.)"""
    mine, theirs = dict(compare.leaves(outputs)), [dict(compare.leaves(tree)) for tree in known]
    lost = more = 0
    for name, value in theirs[0].items():
        got = mine.get(name)
        if not isinstance(value, torch.Tensor) or not isinstance(got, torch.Tensor):
            continue
        others = [beside.whole(tree.get(name)) for tree in theirs]
        if not inexact(value) or got.shape != value.shape:
            continue
        shown = [_SHOWS[what](t.to(got.device)) for t in others if t.shape == got.shape]
        odd = [~torch.isfinite(t.to(got.device)) for t in others if t.shape == got.shape]
        shows = torch.stack(shown if what == "NaN" else [shown[0], *odd[1:]])
        hidden = ~torch.isnan(got) if what == "NaN" else torch.isfinite(got)
        lost += int((shows.all(dim=0) & hidden).sum())
        if what == "NaN":
            more += int((torch.isnan(got) & ~torch.stack(odd).any(dim=0)).sum())
    return lost, more


def _usual(t: torch.Tensor) -> float:
    size = float(t.abs().double().square().mean().sqrt())
    return 2.0 ** round(math.log2(size)) if size else 1.0


def _apart(t: torch.Tensor) -> torch.Tensor:
    """A parameter far from zero, with one sign in each row, and either in all: of one sign alone
    whole samples may lie where next to nothing is left."""
    signs = 1.0 - 2.0 * (torch.arange(t.shape[0]) % 2).to(t.dtype)
    return t + _APART * _usual(t) * signs.reshape(-1, *[1] * (t.dim() - 1))


def _special(session: Session) -> Iterator[Life]:
    """Zeros, which many constructors begin with, one value everywhere, and small ones, which are
    lost beside a bias in what comes out, but not in gradients; with these."""
    start = session.state(PERTURBED)
    learned, live = trained(session), _parameters(session)
    changes: dict[str, dict[str, torch.Tensor]] = {}
    for name in live:
        changes[f"{name} of zeros"] = {name: torch.zeros_like(start[name])}
        if start[name].dim() > 1:
            rows = start[name].clone(memory_format=torch.contiguous_format)
            rows[::2] = 0
            changes[f"{name} with rows of zeros"] = {name: rows}
    # of their usual size: of larger ones all outputs may lie where next to nothing is left
    changes["one value each"] = {n: torch.full_like(start[n], _usual(start[n])) for n in live}
    small = {f"{n} x {_SCALES[0]:g}": {n: start[n] * _SCALES[0]} for n in live}
    changes |= {case: other for case, other in small.items() if next(iter(other.values())).dim()}
    for case, other in changes.items():
        state = {"special": session.tied({**start, **other})}
        steps: list[Step] = [*begin(False, "special"), call("y")]
        steps += [call("with gradients", grad=True, want=True), {"do": "backward", "of": _WANTING}]
        steps += [{"do": "grads", "names": learned, "label": "gradients", "of": _WANTING}]
        # what is zero behind a matrix of zeros may be a kink
        kinks = case not in small and any(v.dim() > 1 for v in other.values())
        stamps = {"gradients": KINKS} if kinks else {}
        given = inputs(session, 1)
        one = Life(case, tuple(steps), given, (), Status.WRONG_MODE, own=state, stamps=stamps)
        yield turning(session, one, "gradients") if kinks else one


TESTS: tuple[Test, ...] = (
    living(
        "special weights",
        "paths for weights of zeros, or of one value, which lose the rest or its gradients",
        "Each of four parameters of zeros, with rows of zeros, or times 2^-12; all of one value "
        "each; with gradients.",
        _special,
        29,
        lives=11,
    ),
    Test(
        "one tensor's size",
        "weights clamped, or left out where they are small, means that cancel large terms",
        "Each of four parameters and four buffers alone times 2^-12 and 2^12, and those of one "
        "axis plus 2^8, rows of others plus or minus 128 times their size, buffers with the inputs "
        "plus 2^10, wherever eager keeps its digits.",
        _sizes,
        calls=22,
    ),
    Test(
        "NaN in a weight",
        "weights of a run that diverged, hidden",
        "One NaN in each of four parameters and four buffers, an infinity in each of two "
        "parameters: what shows it in eager and in float64 shows it.",
        _nan,
        calls=8,
    ),
)
