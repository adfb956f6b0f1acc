"""Lives in which weights are changed, each tensor alone and in every way that programs have."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch

from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import (
    AUTOCAST,
    DTYPES,
    begin,
    call,
    floating,
    inputs,
    living,
    modes,
    trained,
)
from refold.judge.tests.lives.parts import exchanged
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import PERTURBED, SECOND
from refold.judge.verdict.verdict import Status
from refold.judge.worker import writes
from refold.judge.worker.looks import GENERATOR

LATE = "weights written past PyTorch's count are followed one call late"
_PARTS = "weights are not written in part past PyTorch's count"
_FACTOR = 1.25
# Elements of a tensor, a secret choice, each written alone: by much (False) and by little (True).
# An element may do nothing to the output, as where a relu is closed: a fifth of those in the corpus
# do not. So that one of 10,000 judgements sees none that was changed by little, there are six.
_ELEMENTS = (False, True, True) * 3
_LITTLE = (-17, -14, -11)  # a step of an optimizer; less than the usual tolerances of comparisons


def _one(session: Session) -> Iterator[Life]:
    names = floating(session)
    for train in modes(session) if names else ():
        steps = [*begin(train), call("first"), call("again")]
        for name in names:
            steps += [
                {"do": "write", "names": [name], "how": "in place", "factor": _FACTOR},
                call(f"after {name} changed alone"),
            ]
        where = "train" if train else "eval"
        yield Life(where, tuple(steps), inputs(session, 1), status=Status.STALE_WEIGHTS)
    if names:
        steps = [*begin(False), call("first")]
        for power in _LITTLE:
            steps += [
                {"do": "write", "names": names, "how": "in place", "factor": 1 + 2.0**power},
                call(f"after all grew by 2^{power}"),
            ]
        given = inputs(session, 1)
        yield Life("a little", tuple(steps), given, status=Status.STALE_WEIGHTS)
    yield from _alike(session)


def _alike(session: Session) -> Iterator[Life]:
    """Weights of which much stays as it was: all sums, all elements but one."""
    names = floating(session, buffers=False)
    steps = [*begin(False), call("first")]
    for how in ("few bits", "the same sums", "reversed", "the same sums"):
        write = {"do": "write", "names": names, "how": how, "factor": _FACTOR}
        steps += [write, call(f"after step {len(steps)}: {how}")]
    given, status = inputs(session, 1), Status.STALE_WEIGHTS
    if names:
        yield Life("sums stay the same", tuple(steps), given, status=status)
    draw, state = random.Random(session.secret ^ 5), session.oracle.state()
    steps = [*begin(False), call("first"), call("again")]
    for name in names[:4]:
        for little, at in zip(_ELEMENTS, _places(state[name], draw), strict=False):
            part = {"do": "write_part", "name": name, "at": at, "count": 1, "how": "in place"}
            steps += [{**part, "little": little}, call(f"element {at} of {name}, {len(steps)}")]
    if names:
        yield Life("one element", tuple(steps), given, status=status)


def _places(tensor: torch.Tensor, draw: random.Random) -> Iterator[int]:
    """Elements in other rows each, as far as there are rows: of some nothing comes out."""
    rows = tensor.shape[0] if tensor.dim() else 1
    width = tensor.numel() // rows
    order = draw.sample(range(rows), rows)
    for i in itertools.count():
        yield order[i % rows] * width + draw.randrange(width)


def _ways(session: Session) -> Iterator[Life]:
    names = floating(session)
    for how in writes.COUNTED if names else ():
        steps = [*begin(False), call("first"), call("again")]
        for name in names[:4]:
            steps += [
                {"do": "write", "names": [name], "how": how, "factor": _FACTOR},
                call(f"after {name}"),
            ]
        yield Life(how, tuple(steps), inputs(session, 1), status=Status.STALE_WEIGHTS)
    parameters = trained(session)
    if parameters:
        vector = {
            "do": "write",
            "names": parameters,
            "how": "vector_to_parameters",
            "factor": _FACTOR,
        }
        steps = [*begin(False), call("first"), vector, call("after it"), call("once more")]
        stamps = {"after it": LATE}
        yield Life(
            "vector_to_parameters",
            tuple(steps),
            inputs(session, 1),
            status=Status.STALE_WEIGHTS,
            stamps=stamps,
        )
    for name in parameters[:2]:
        one = {"do": "parametrize", "name": name}
        steps = [*begin(False), call("first"), {**one, "on": True}, call("with it")]
        steps += [call("once more", "x1"), {**one, "on": False}, call("without it")]
        case, status = f"a parametrization of {name}", Status.STALE_WEIGHTS
        yield Life(case, tuple(steps), inputs(session), status=status)
    if names and session.device.type == "cpu" and not session.request.sandbox:
        # the same tensors at other addresses
        steps = [*begin(False), call("first"), call("again"), {"do": "share"}]
        for name in names[:4]:
            write = {"do": "write", "names": [name], "how": "in place", "factor": _FACTOR}
            steps += [write, call(f"after {name} was shared and written")]
        case = "share_memory()"
        yield Life(case, tuple(steps), inputs(session, 1), status=Status.STALE_WEIGHTS)
    steps = [*begin(False), call("first")]
    for name in names[:4]:
        write = {"do": "write", "names": [name], "how": "reversed", "factor": _FACTOR}
        steps += [write, call(f"after {name} is reversed")]
    if names:
        yield Life(
            "the same values elsewhere",
            tuple(steps),
            inputs(session, 1),
            status=Status.STALE_WEIGHTS,
        )
    if parameters:
        forward = call("y", grad=True, want=True, see=False)
        steps = [*begin(), forward, {"do": "load", "state": SECOND, "assign": True}, forward]
        steps += [{"do": "backward", "of": "y"}]
        steps += [{"do": "grads", "names": parameters, "label": "gradients", "of": "y"}]
        states = (PERTURBED, SECOND)
        yield Life("gradients of assigned parameters", tuple(steps), inputs(session, 1), states)
    steps = [*begin(False), call("first"), {"do": "save", "name": "s"}]
    steps += [{"do": "load", "state": SECOND}]
    steps += [{"do": "random", "label": f"{GENERATOR} loading"}, call("another state")]
    steps += [{"do": "restore", "name": "s"}, call("the first state again")]
    steps += [{"do": "load", "state": SECOND, "assign": True}, call("assigned")]
    states = (PERTURBED, SECOND)
    yield Life("states", tuple(steps), inputs(session, 1), states, Status.STALE_WEIGHTS)


def _uncounted(session: Session) -> Iterator[Life]:
    names = floating(session)
    for how in writes.UNCOUNTED if names else ():
        steps = [*begin(False), call("first"), call("again")]
        stamps, instead = {}, {}
        given, before = ["x0", "x1"], {"x0": "again", "x1": ""}
        for name in names[:4]:
            soon, late = f"the call after {name}", f"the second call after {name}"
            steps += [
                {"do": "write", "names": [name], "how": how, "factor": _FACTOR},
                call(soon, given[0]),
                call(late, given[1]),
            ]
            stamps[soon], instead[soon] = LATE, before[given[0]]
            before = dict(zip(given, (soon, late), strict=True))
            given.reverse()  # what is stale is, bit by bit, what these inputs gave before
        yield Life(
            how,
            tuple(steps),
            inputs(session),
            status=Status.STALE_WEIGHTS,
            stamps=stamps,
            instead=instead,
        )
    if names:
        yield _unseen_sums(session, names)
    parameters = trained(session)
    if parameters:
        steps = [*begin(False), call("first"), {"do": "take", "names": parameters, "key": "own"}]
        other = {"do": "write", "names": parameters, "how": ".data = other", "factor": 0.75}
        steps += [other, call("the average"), call("the average, second call", "x1")]
        steps += [{"do": "put_back", "key": "own"}, call("its own", "x1"), call("its own, second")]
        stamps = {"the average": LATE, "its own": LATE}
        yield Life(
            "weights exchanged for an average and back",
            tuple(steps),
            inputs(session),
            status=Status.STALE_WEIGHTS,
            stamps=stamps,
        )
        part = {"do": "write_part", "name": parameters[0], "at": 0, "count": 1, "how": "data"}
        steps = [*begin(False), call("first"), part, call("the call after"), call("the second")]
        yield Life(
            "one element",
            tuple(steps),
            inputs(session, 1),
            status=Status.STALE_WEIGHTS,
            stamps={"the call after": LATE, "the second": _PARTS},
        )


def _unseen_sums(session: Session, names: list[str]) -> Life:
    """Past PyTorch's count each tensor keeps its sums, which are exact: who looks for such writes
    by a sum sees none."""
    few = {"do": "write", "names": names, "how": "few bits", "factor": _FACTOR}
    steps = [*begin(False), few, call("first"), call("again")]
    stamps, instead, last = dict[str, str](), dict[str, str](), "again"
    for name in names[:4]:
        soon, late = f"the call after {name}", f"the second call after {name}"
        write = {"do": "write", "names": [name], "how": "the same sums, by .data"}
        steps += [{**write, "factor": _FACTOR}, call(soon), call(late)]
        stamps[soon], instead[soon], last = LATE, last, late
    given, stale = inputs(session, 1), Status.STALE_WEIGHTS
    return Life("the same sums", tuple(steps), given, status=stale, stamps=stamps, instead=instead)


def _frozen(session: Session) -> Iterator[Life]:
    """Weights that want no gradients are written, too: by who averages them, or loads others."""
    names = trained(session)
    if not names:
        return
    steps = [*begin(False), {"do": "want", "names": names, "value": False}]
    steps += [call("first"), call("again")]
    for name in names[:4]:
        steps += [
            {"do": "write", "names": [name], "how": "in place", "factor": _FACTOR},
            call(f"after {name} changed"),
        ]
    steps += [{"do": "load", "state": SECOND}, call("another state")]
    steps += [{"do": "want", "names": names, "value": True}, call("thawed", "x1")]
    states, stale = (PERTURBED, SECOND), Status.STALE_WEIGHTS
    yield Life("all frozen", tuple(steps), inputs(session), states, stale)


def _each_way(names: list[str]) -> list[tuple[str, str]]:
    """Each of four tensors in place, and two of them past PyTorch's count."""
    return [*((n, "in place") for n in names[:4]), *((n, ".data.mul_") for n in names[:2])]


def _everywhere(session: Session) -> Iterator[Life]:
    """Weights are written between calls in other modes than no_grad's, past PyTorch's count, too:
    that counts at the second call at the latest."""
    names = floating(session)
    for how in ("inference", "autocast", "float64", "gradients") if names else ():
        options: dict[str, Any] = {"cast": how} if how == "float64" else {"how": how}
        options = {"grad": True} if how == "gradients" else options
        steps = [*begin(False), call("first")]
        stamps, instead = {}, {}
        if how == "float64":
            steps += [{"do": "dtype", "to": how}]
        for name, kind in (("", ""), *_each_way(names)):
            if name:
                write = {"do": "write", "names": [name], "how": kind, "factor": _FACTOR}
                steps += (
                    [write, call("soon", see=False, **options)]
                    if kind in writes.UNCOUNTED
                    else [write]
                )
            label = f"after {name}, {kind}" if name else "before"
            steps += [call(label, **options)]
            if how == "autocast":
                plain = f"without it, {len(steps)}"
                steps += [call(plain)]
                stamps[label], instead[label] = AUTOCAST, plain
        yield Life(
            how,
            tuple(steps),
            inputs(session, 1),
            status=Status.STALE_WEIGHTS,
            stamps=stamps,
            instead=instead,
            coarse=how == "autocast",
            dtypes=DTYPES if how == "float64" else "",
        )


TESTS: tuple[Test, ...] = (
    living(
        "one tensor at a time",
        "a fold that looks at some of its sources only",
        "After each parameter and buffer was changed alone, in either mode, it counts; all, by "
        "little; all, so that sums stay; one element.",
        _one,
        64,
        lives=5,
    ),
    living(
        "ways to write",
        "a fold keyed by object, by address or by version alone",
        "Weights assigned, copied, set, restored, exchanged for one another, shared with processes "
        "or made views of one vector count at once.",
        _ways,
        42,
    ),
    living(
        "uncounted writes",
        "a fold that trusts PyTorch's count of versions",
        "Weights written through .data, or by foreign code, count at the second call at latest.",
        _uncounted,
        48,
    ),
    living(
        "frozen weights",
        "weights that want no gradients taken for constants",
        "Weights of which none wants gradients are written, loaded and thawed.",
        _frozen,
        10,
        lives=1,
    ),
    living(
        "weights in other modes",
        "casts and folds of inference_mode, of autocast, of float64",
        "Weights written between calls under inference_mode, under autocast, in float64, with "
        "gradients count; past PyTorch's count at the second call at latest.",
        _everywhere,
        44,
        lives=4,
    ),
    living(
        "parts exchanged",
        "parts that are held beside the module's own names, a bias that is gone",
        "A part with weights is replaced by another one, of more outputs, too, gets another one's "
        "weight, loses its bias or its statistics; a part without is wrapped: it counts, where the "
        "candidate has it.",
        exchanged,
        26,
        lives=12,
    ),
)
