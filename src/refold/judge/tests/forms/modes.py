"""Lives in which the module is called under PyTorch's modes and settings, and in other types."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from refold.judge import draws
from refold.judge.draws.trees import all_finite, tensors
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import (
    AUTOCAST,
    DTYPES,
    begin,
    call,
    floating,
    inputs,
    living,
    trained,
)
from refold.judge.tests.lives.weights import LATE
from refold.judge.verdict import facts, life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status
from refold.judge.worker.settings import EVERY, SETTINGS
from refold.judge.worker.steps import FACT, Step

OWN_WEIGHTS = "parameters are the module's own: functional_call is not followed"
MEMORY = "negative bits of inputs, which imag of conjugates has, are not read: memory is"
RETYPED = "a copy of a module that was moved has other types"
_LARGE_INPUTS = "large inputs"
_LARGE = 16.0  # times the inputs of a module of 16 bits
_BEYOND = 512.0  # its square is beyond float16's range
_NARROW = (torch.float16, torch.bfloat16)


def _grad_modes(session: Session) -> Iterator[Life]:
    steps = [*begin(), call("first"), call("inference", "x1", how="inference")]
    steps += [call("after it"), call("with gradients", "x1", grad=True)]
    yield Life("torch.inference_mode", tuple(steps), inputs(session), must=True)
    steps = [*begin(), call("inference", how="inference"), call("after it", "x1")]
    steps += [call("with gradients", "x0", grad=True)]
    yield Life("torch.inference_mode first", tuple(steps), inputs(session), must=True)
    steps = [*begin(), call("no_grad", want=True)]
    wants = {"do": "wants", "of": "no_grad", "label": "whether outputs want gradients"}
    seen = life.eager(session, Life("", (*steps, wants), inputs(session))).seen
    if seen.get(wants["label"]) == (FACT, False):  # else it is a parameter that is given back
        steps += [wants]
    steps += [call("after it", "x1", grad=True, want=True)]
    yield Life("inputs that want gradients under no_grad", tuple(steps), inputs(session))
    if any(True for _ in session.oracle.model.parameters()):
        yield _told(session, "functional", OWN_WEIGHTS)
    said = "the default dtype is the one that it was built under"
    yield _told(session, "default", said)
    steps = [*begin(), call("y", grad=True), {"do": "laid", "of": "y", "label": "strides"}]
    case, status = "how results lie with gradients", Status.WRONG_CONTRACT
    stamps = {"strides": facts.STRIDED} if facts.lies_otherwise(session) else {}
    yield Life(case, tuple(steps), inputs(session, 1), status=status, stamps=stamps)


def _told(session: Session, how: str, said: str) -> Life:
    """A call in a form that a candidate may not know, which is told."""
    steps = (*begin(False), call("first"), call("y", "x1", how=how), call("after it", "x1"))
    # a buffer that is made without a dtype is of the default one: then anything comes out
    instead = {} if how == "default" else {"y": "after it"}
    coarse = how.startswith("autocast")
    return Life(how, steps, inputs(session), coarse=coarse, stamps={"y": said}, instead=instead)


def _autocast(session: Session) -> Iterator[Life]:
    for how in ("autocast", "autocast in float16"):
        yield _told(session, how, AUTOCAST)
    names = trained(session)
    steps: list[Step] = [*begin()]
    for label, how in (("gradients", "autocast"), ("gradients without it", "")):
        steps += [call(f"forward for {label}", grad=True, want=True, how=how, see=False)]
        steps += [{"do": "backward", "of": f"forward for {label}"}]
        steps += [{"do": "grads", "names": names, "label": label, "of": f"forward for {label}"}]
        steps += [{"do": "zero"}]
    stamps, instead = {"gradients": AUTOCAST}, {"gradients": "gradients without it"}
    given = inputs(session, 1)
    yield Life("a backward", tuple(steps), given, coarse=True, stamps=stamps, instead=instead)


def _threads(session: Session) -> Iterator[Life]:
    held = tensors(session.inputs())
    batch = held[0].shape[0] if held and held[0].dim() else 0
    for how in ("one thread", "three threads"):
        steps = [*begin(False), call("first"), call("y", "x1", how=how)]
        if how == "three threads" and batch > 2:
            steps += [call(f"{n} of the rows", how=how, rows=n) for n in (batch - 1, batch - 2)]
        steps += [call("after it")]
        yield Life(how, tuple(steps), inputs(session), status=Status.WRONG_NUMERICS)


def _vmap(session: Session) -> Iterator[Life]:
    steps = (*begin(False), call("first"), call("y", "x1", how="vmap"), call("after it"))
    yield Life("", steps, inputs(session), status=Status.WRONG_NUMERICS)
    if any(True for _ in session.oracle.model.parameters()):
        steps = (*begin(False), call("own", how="twice"), call("y", how="vmap of weights"))
        given, instead, stamps = inputs(session, 1), {"y": "own"}, {"y": OWN_WEIGHTS}
        case, status = "two sets of weights", Status.WRONG_NUMERICS
        yield Life(case, steps, given, status=status, stamps=stamps, instead=instead)


def _dtypes(session: Session) -> Iterator[Life]:
    state = session.oracle.state().values()
    floats = {t.dtype for t in (*state, *tensors(session.inputs())) if t.is_floating_point()}
    yield from _widened(session, moves=floats == {torch.float32})
    if floats != {torch.float32}:
        return
    for to in ("float64", "bfloat16", "float16"):
        yield from _there_and_back(session, to)
        steps = [*begin(), call("first"), {"do": "dtype", "to": to}, call("moved", cast=to)]
        given = inputs(session, 1)
        if to == "float64":
            steps += [{"do": "dtype", "to": "float32"}, call("and back")]
        else:  # what float32's range hides
            given["large"] = draws.mapped(given["x0"], lambda t: t * _LARGE)
            steps += [call(_LARGE_INPUTS, "large", cast=to)]
            steps += [{"do": "numbers", "of": _LARGE_INPUTS, "label": "where they are finite"}]
        seen = life.eager(session, Life("", tuple(steps), given)).seen
        _, tree = seen.get("moved", ("", None))
        if not any(t.dtype == getattr(torch, to) for t in tensors(tree)):
            continue
        yield Life(
            to,
            tuple(steps),
            given,
            status=Status.WRONG_NUMERICS,
            dtypes=DTYPES,
            eps=torch.finfo(getattr(torch, to)).eps,
            near=(_LARGE_INPUTS,),
        )
        if to == "float64":
            yield _gradients_moved(session, to)
            yield _copied(session, to)
        elif to == "bfloat16":
            yield from _stretched(session, to)


class _Widens(TorchFunctionMode):
    """Whether somebody's Python widens 16-bit numbers: a function is given such, and gives others.
    What kernels do inside is none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype is torch.float32:
            self.seen |= any(t.dtype in _NARROW for t in tensors([*args]))
        return result


def _widened(session: Session, moves: bool) -> Iterator[Life]:
    """Where the reference's text itself widens 16-bit numbers before it computes, their squares may
    leave the range of float16, and answers stay finite. ``moves``: the module has to be float16,
    too; else its inputs of 16 bits are."""
    given, to = session.inputs(), "float16"
    held = [t for t in tensors(given) if t.is_floating_point()]
    if not moves and not any(t.dtype in _NARROW for t in held):
        return
    most = max((float(t.abs().max()) for t in held if t.numel()), default=0.0)
    if not 0.0 < most < math.inf:
        return
    large = draws.mapped(given, lambda t: t * (_BEYOND / most))
    move: list[Step] = [{"do": "dtype", "to": to}] if moves else []
    steps = (*begin(), *move, call("y", cast=to))
    eps, wrong = torch.finfo(torch.float16).eps, Status.WRONG_NUMERICS
    case = f"{to}, inputs whose squares leave its range"
    one = Life(case, steps, {"x0": large}, status=wrong, dtypes=DTYPES, eps=eps, near=("y",))
    with _Widens() as text:
        seen = life.eager(session, one).seen
    if text.seen and "y" in seen and all(all_finite(t) for t in _numbers(seen["y"][1])):
        yield one


def _numbers(tree: Any) -> list[torch.Tensor]:
    return [t for t in tensors(tree) if t.is_floating_point() and t.numel()]


def _gradients_moved(session: Session, to: str) -> Life:
    names = trained(session)
    steps = [*begin(), {"do": "dtype", "to": to}]
    steps += [call("y", cast=to, grad=True, want=True, see=False), {"do": "backward", "of": "y"}]
    steps += [{"do": "grads", "names": names, "label": "gradients", "of": "y"}]
    eps = torch.finfo(getattr(torch, to)).eps
    case = f"a backward in {to}"
    return Life(case, tuple(steps), inputs(session, 1), dtypes=DTYPES, eps=eps)


def _stretched(session: Session, to: str) -> Iterator[Life]:
    """Long axes: places above 256 have no number of their own in bfloat16."""
    for case, given in draws.stretched(session.inputs()):
        steps = (*begin(), {"do": "dtype", "to": to}, call("y", cast=to))
        eps, wrong = torch.finfo(getattr(torch, to)).eps, Status.WRONG_NUMERICS
        one = Life(f"{to}, {case}", steps, {"x0": given}, status=wrong, dtypes=DTYPES, eps=eps)
        yield replace(one, long=("y",))


def _copied(session: Session, to: str) -> Life:
    """Whether a copy of a module that was moved has its types."""
    steps: list[Step] = [*begin(), {"do": "dtype", "to": to}, {"do": "clone", "to": "copy"}]
    steps += [{"do": "retyped", "label": "types", "model": "copy"}]
    case, stamps = f"a copy in {to}", {"types": RETYPED}
    return Life(case, tuple(steps), inputs(session, 1), stamps=stamps)


def _there_and_back(session: Session, to: str) -> Iterator[Life]:
    """Weights that another type has rounded count, as exactly as others, when they are float32
    again. PyTorch puts their memory in the old one's place without counting that as a write."""
    if not any(p.is_floating_point() for p in session.oracle.model.parameters()):
        return
    for called in (False, True):
        steps = [*begin(False), call("first"), call("again"), {"do": "dtype", "to": to}]
        steps += [call("there", cast=to, see=False)] if called else []
        steps += [{"do": "dtype", "to": "float32"}, call("back"), call("back, second call")]
        case = f"to {to} and back, {'called' if called else 'not called'} meanwhile"
        yield Life(
            case,
            tuple(steps),
            inputs(session, 1),
            status=Status.STALE_WEIGHTS,
            stamps={"back": LATE},
            instead={"back": "again"},
        )


def _settings(session: Session) -> Iterator[Life]:
    names = floating(session)
    known = SETTINGS if session.device.type == "cpu" else EVERY
    for how in known:
        on, off = ({"do": "setting", "name": how, "on": value} for value in (True, False))
        # a fold may be made under it, looked at under it, or not be looked at under it
        steps = [*begin(False), call("first"), on, call("under it", "x1")]
        if names:
            write: Step = {"do": "write", "names": names, "how": "in place", "factor": 1.25}
            steps += [write, call("under it, after a write", "x1")]
        steps += [off, call("behind it", "x1"), *begin(False), on, call("first under it")]
        steps += [{"do": "mode", "train": True}, call("trains under it"), off]
        steps += [{"do": "mode", "train": False}, call("behind it once more")]
        yield Life(how, tuple(steps), inputs(session), status=Status.STALE_WEIGHTS)
        steps = [*begin(), on, call("y", grad=True, want=True), {"do": "backward", "of": "y"}, off]
        steps += [{"do": "grads", "names": trained(session), "label": "gradients", "of": "y"}]
        yield Life(f"a backward, {how}", tuple(steps), inputs(session, 1))


def _bits(session: Session) -> Iterator[Life]:
    """Kernels that know pointers alone read past a bit. Of conjugates, which are ordinary, they may
    not; negative bits come from parts of these alone, and there it is told."""
    held = tensors(session.inputs())
    kinds = {"negative bit": torch.is_floating_point, "conjugate bit": torch.is_complex}
    for how, fits in kinds.items():
        if not any(fits(t) for t in held):
            continue
        lazy = how == "negative bit"
        steps = [*begin(False), call("first"), call("y", "x1", how=how), call("behind it", "x1")]
        steps += [call("its memory", "x1", how="negative")] if lazy else []
        yield Life(
            how,
            tuple(steps),
            inputs(session),
            status=Status.WRONG_NUMERICS,
            stamps={"y": MEMORY} if lazy else {},
            instead={"y": "its memory"} if lazy else {},
        )
        steps = [*begin()]
        for label, form in (("gradients", how), ("those of its memory", "negative")):
            if form != "negative" or lazy:
                forward = f"forward for {label}"
                steps += [call(forward, grad=True, want=True, how=form, see=False)]
                steps += [{"do": "backward", "of": forward}]
                names = trained(session)
                steps += [{"do": "grads", "names": names, "label": label, "of": forward}]
                steps += [{"do": "zero"}]
        yield Life(
            f"a backward, {how}",
            tuple(steps),
            inputs(session, 1),
            stamps={"gradients": MEMORY} if lazy else {},
            instead={"gradients": "those of its memory"} if lazy else {},
        )


TESTS: tuple[Test, ...] = (
    living(
        "grad modes",
        "inference tensors that are kept, gradients where none are wanted",
        "A call under inference_mode, then one that wants gradients; functional_call, whose answer "
        "may be what it always is, which is told; another default dtype, which is told.",
        _grad_modes,
        5,
    ),
    living(
        "autocast",
        "answers under autocast that are neither its own nor those without it",
        "Outputs and gradients under autocast, which may be computed as if there were none.",
        _autocast,
        5,
        lives=2,
    ),
    living(
        "number of threads",
        "rows divided by the number of threads",
        "With one thread of PyTorch's, and with three.",
        _threads,
        8,
        lives=2,
    ),
    living(
        "vmap",
        "samples, or weights, that are taken for one another under vmap",
        "torch.func.vmap over two sets of inputs, and over two of weights.",
        _vmap,
        7,
        lives=2,
    ),
    living(
        "dtype moves",
        "float32 inside a module that was moved to float64, folds that outlive a move, what "
        "leaves the range of 16 bits",
        "The module in float64, bfloat16 and float16, and back, where the rounded weights count; "
        "gradients in float64; larger inputs in 16 bits are finite where eager's are, those whose "
        "squares float16 has not, too, where the reference widens them; long axes in bfloat16; "
        "whether a copy has the types is told.",
        _dtypes,
        53,
    ),
    living(
        "settings",
        "other answers, or folds that are not looked at, under settings that are seldom used",
        "Calls and backwards with deterministic algorithms, with detection of anomalies, without "
        "oneDNN (cuDNN), under modes of functions and of operators.",
        _settings,
        50,
        lives=15,
    ),
    living(
        "lazy bits",
        "memory of inputs that is read past their negative or conjugate bit",
        "Inputs whose memory holds the conjugate, or the negative, of their values; that the "
        "latter is taken as it lies there is told.",
        _bits,
        5,
        lives=2,
    ),
)
