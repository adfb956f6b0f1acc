"""Lives with backwards: every form of cotangent, of graph and of what wants gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.tests.backward import written
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.lives import common
from refold.judge.tests.lives.common import OTHER_RANK, begin, call, inputs, living, trained
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status
from refold.judge.worker.steps import Step

_ALONE = 6
_BATCHES = (0, 1, 3, 8, 50, 65, 257)
_BYTES = 64 << 20  # of inputs and outputs of the larger ones
_AXES = 6  # axes but the batch, which are longer by one, and much longer


def _back(names: list[str], label: str, of: str = "y", **options: Any) -> list[Step]:
    """A backward of a call and what it left."""
    return [
        {"do": "backward", "of": of, **options},
        {"do": "grads", "names": names, "label": label, "of": of},
    ]


def _forward(label: str = "y", given: str = "x0", want: bool = True) -> Step:
    return call(label, given, grad=True, want=want, see=False)


def _cotangents(session: Session) -> Iterator[Life]:
    names = trained(session)
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("sum(), of stride 0", {"how": "sum"}),
        ("slices of a larger tensor", {"how": "strided"}),
        ("its first axis and its last exchanged", {"how": "turned"}),
        ("none for the first column", {"how": "columns"}),
        ("none but for the first column", {"how": "column"}),
        ("none for every second row", {"how": "rows"}),
        ("scale 2^-40", {"scale": 2.0**-40}),
        ("scale 2^24", {"scale": 2.0**24}),  # more than who scales losses of 16 bits begins with
    )
    scales = ("rows of unlike scales", {"how": "scales"})
    for case, options in (*kinds, scales) if session.fine else kinds:
        steps = (*begin(), _forward(), *_back(names, "gradients", **options))
        yield Life(case, steps, inputs(session, 1))
    # who scales losses of 16 bits looks for what is no number, and skips the step
    nans = {"do": "nans", "names": names, "label": "which gradients are not finite"}
    for case, how in (("no numbers", "nan"), ("infinity", "infinite")):
        steps = (*begin(), _forward(), {"do": "backward", "of": "y", "how": how}, nans)
        yield Life(f"{case} in the first row", steps, inputs(session, 1))


def _outputs(session: Session) -> Iterator[Life]:
    names = trained(session)
    truth = session.truth(session.inputs()).eager
    count = len(tensors(truth.outputs)) if truth is not None else 0
    for i in range(count if count > 1 else 0):
        steps = [*begin(), _forward(), *_back(names, "gradients", only=i)]
        yield Life(f"output {i} alone", tuple(steps), inputs(session, 1))


def _forwards(session: Session) -> Iterator[Life]:
    names = trained(session)
    steps = [*begin(), _forward("y0", "x0"), _forward("y1", "x1")]
    steps += [*_back(names, "gradients of the first", "y0"), {"do": "zero"}]
    steps += _back(names, "gradients of the second", "y1")
    yield Life("two forwards, then their backwards", tuple(steps), inputs(session))
    steps = [*begin(), _forward("y0", "x0"), _forward("y1", "x1")]
    steps += [{"do": "backward", "of": ["y0", "y1"]}]
    steps += [{"do": "grads", "names": names, "label": "gradients of both", "of": "y0"}]
    yield Life("two forwards, one backward", tuple(steps), inputs(session))
    steps = [*begin(), _forward(), {"do": "drop", "model": "a"}, *_back([], "gradients")]
    if draws.has_numbers(session.inputs()):
        yield Life("a backward when the module is gone", tuple(steps), inputs(session, 1))
    steps = [*begin(), _forward(), *_back(names, "gradients", apart=True)]
    yield Life("a backward in another thread", tuple(steps), inputs(session, 1))


def _accumulated(session: Session) -> Iterator[Life]:
    names = trained(session)
    steps = [*begin(), _forward("y0", "x0"), *_back(names, "gradients of one", "y0")]
    steps += [_forward("y1", "x1"), *_back(names, "gradients of two", "y1")]
    yield Life("two backwards into the same gradients", tuple(steps), inputs(session))
    if names:
        steps = [*begin(), _forward("y0", "x0"), {"do": "backward", "of": "y0"}]
        steps += [{"do": "zero", "fill": True}, _forward("y1", "x1")]
        steps += _back(names, "gradients", "y1")
        yield Life("gradients that were filled with zeros", tuple(steps), inputs(session))
    steps = [*begin(), _forward(), *_back(names, "gradients of the inputs", how="grad")]
    yield Life("torch.autograd.grad", tuple(steps), inputs(session, 1))
    for train in (session.oracle.training, not session.oracle.training) if names else ():
        steps = [*begin(train), _forward("y0", "x0"), *_back(names, "gradients", "y0")]
        write = {"do": "write", "names": names, "how": "in place", "factor": 1.25}
        steps += [{"do": "zero"}, write, _forward("y1", "x0")]
        steps += _back(names, "gradients after the weights changed", "y1")
        case = f"weights changed between, in {'train' if train else 'eval'} mode"
        yield Life(case, tuple(steps), inputs(session, 1))
    if names or draws.has_numbers(session.inputs()):
        steps = [*begin(), _forward("y0", "x0"), {"do": "slopes", "of": "y0", "label": "g0"}]
        steps += [_forward("y1", "x1"), {"do": "slopes", "of": "y1", "label": "g1"}]
        steps = [{**s, "names": names} if s["do"] == "slopes" else s for s in steps]
        steps += [{"do": "look", "of": "g0", "label": "the first gradients, later"}]
        case = "gradients that the caller keeps"
        yield Life(case, tuple(steps), inputs(session), status=Status.MUTATES)
        steps = [*begin(), _forward("y0", "x0"), {"do": "backward", "of": "y0"}]
        steps += [_forward("y1", "x1")]
        steps += [{"do": "slopes", "of": "y1", "label": "what it gave", "names": names}]
        steps += [{"do": "grads", "names": names, "label": "those that were there", "of": "y0"}]
        case = "torch.autograd.grad where there are gradients"
        yield Life(case, tuple(steps), inputs(session))


def fits(session: Session) -> bool:
    """Whether outputs are such as inputs are: several layers may be one module."""
    truth = session.truth(session.inputs()).eager
    given = tensors(session.inputs())
    made = [] if truth is None else tensors(truth.outputs)[: len(given)]
    alike = [a.shape == b.shape and a.dtype == b.dtype for a, b in zip(made, given, strict=False)]
    return len(alike) == len(session.inputs()) == len(given) and all(alike)


def _inside(session: Session) -> Iterator[Life]:
    """As a part of a network: what comes in has a history, what goes out is changed in place."""
    names = trained(session)
    first = call("y", grad=True, want=True, how="inside", see=False)
    steps = [*begin(), first, *_back(names, "gradients")]
    yield Life("inputs that are results", tuple(steps), inputs(session, 1))
    for how in ("views", "expanded"):
        steps = [*begin(), {**first, "how": how}, *_back(names, "gradients")]
        case, alike = f"inputs that are {how}", how == "expanded"  # and so, however they move
        yield Life(case, tuple(steps), inputs(session, 1), still=alike)
    if draws.twice(session.inputs()):
        steps = [*begin(), {**first, "how": "joined"}, *_back(names, "gradients")]
        yield Life("one tensor for several inputs", tuple(steps), inputs(session, 1))
    steps = [*begin(), _forward(), call("twice", "y", grad=True, see=False)]
    steps += [{"do": "backward", "of": "twice"}]
    # of two passes rounding says little, where terms cancel in both
    steps += [{"do": "grads", "names": names, "label": "gradients", "of": "y", "few": True}]
    if fits(session):
        yield Life("its outputs as its inputs", tuple(steps), inputs(session, 1))
    steps = [*begin(), first, {"do": "change", "of": "y"}, *_back(names, "gradients")]
    yield Life("outputs that are changed in place", tuple(steps), inputs(session, 1))
    if draws.has_numbers(session.inputs()):
        again = call("after a step", grad=True, given_to="y")
        steps = [*begin(), _forward(), {"do": "backward", "of": "y"}]
        steps += [{"do": "learn", "of": "y", "rate": 2.0**-4}, again]
        steps += [{"do": "zero"}, *_back(names, "gradients", "after a step")]
        yield Life("an input that learns", tuple(steps), inputs(session, 1))


def _network(session: Session) -> Iterator[Life]:
    yield from _inside(session)
    yield from written.lives(session)


def _forward_mode(session: Session) -> Iterator[Life]:
    if session.quick and session.request.only is None:
        raise Skip("left out: forward mode imports the compiler, for seconds; without --quick")
    if not draws.has_numbers(session.inputs()):
        return
    steps = [*begin(False), call("tangents", grad=True, want=True, how="tangents")]
    shown = life.eager(session, Life("", tuple(steps), inputs(session, 1))).seen
    if any(bool((t != 0).any()) for t in tensors(shown.get("tangents", ("", None))[1])):
        lost = "whether there are tangents"
        steps += [{"do": "nonzero", "of": "tangents", "label": lost}]
        # no_grad() lets tangents pass, detach() does not: an honest path may use either
        stamps = {"tangents": "forward mode: tangents are others than the reference's"}
        yield Life("", tuple(steps), inputs(session, 1), stamps=stamps)


def _retained(session: Session) -> Iterator[Life]:
    names = trained(session)
    steps = [*begin(), _forward(), *_back(names, "gradients", retain=True)]
    steps += [{"do": "zero"}, *_back(names, "gradients once more")]
    yield Life("retain_graph", tuple(steps), inputs(session, 1))


def _penalty(session: Session) -> Iterator[Life]:
    names = trained(session)
    if draws.has_numbers(session.inputs()):
        steps = [*begin(), _forward(), *_back(names, "gradients", how="penalty")]
        case = "squared gradients of the inputs in the loss"
        yield Life(case, tuple(steps), inputs(session, 1))
        steps = [*begin(), _forward(), {"do": "backward", "of": "y", "how": "curvature"}]
        # no values are compared: of some layers PyTorch's own third derivative is wrong
        steps += [{"do": "reached", "of": "y", "label": "inputs that have a third derivative"}]
        case = "squared second derivatives in the loss"
        yield Life(case, tuple(steps), inputs(session, 1))
    if names:
        steps = [*begin(), _forward(), {"do": "penalize", "of": "y", "names": names}]
        steps += [{"do": "grads", "names": names, "label": "gradients", "of": "y"}]
        case = "squared gradients of the weights in the loss"
        yield Life(case, tuple(steps), inputs(session, 1))


def _frozen(session: Session) -> Iterator[Life]:
    names = trained(session)
    held = tensors(session.inputs())
    floats = [i for i, t in enumerate(held) if t.is_floating_point()]
    for i in floats[:_ALONE] if len(floats) > 1 else ():
        steps = [*begin(), call("y", grad=True, want=[i], see=False), *_back(names, "gradients")]
        yield Life(f"input {i} alone", tuple(steps), inputs(session, 1))
    if len(names) < 2:
        return
    for name in names[:_ALONE]:
        others = [n for n in names if n != name]
        for frozen, case in (([name], f"{name} frozen"), (others, f"{name} alone trained")):
            steps = [*begin(), {"do": "want", "names": frozen, "value": False}]
            steps += [{"do": "mode", "train": session.oracle.training}]  # as before each epoch
            steps += [_forward(want=False), *_back(names, "gradients")]
            yield Life(case, tuple(steps), inputs(session, 1))
    for name in names[:2]:
        steps = begin()
        for turn, wanted in enumerate((False, True, False)):
            steps += [{"do": "want", "names": [name], "value": wanted}]
            label = f"y{turn}"
            steps += [_forward(label), *_back(names, f"gradients, {wanted}, {turn}", label)]
            steps += [{"do": "zero"}]
        yield Life(f"{name} frozen, thawed, frozen again", tuple(steps), inputs(session, 1))


def _batches(session: Session) -> Iterator[Life]:
    names, given = trained(session), session.inputs()
    held = tensors(given)
    if not held or not held[0].dim():
        return
    batch = held[0].shape[0]
    first = [(i, 0) for i, t in enumerate(held) if t.dim() and t.shape[0] == batch]
    each = sum(t.numel() * t.element_size() for t in held) / max(batch, 1)
    steps = [*begin(), _forward(), *_back(names, "gradients")]
    for size in _BATCHES:
        if size != batch and (size <= 50 or size * each < _BYTES):
            sized = {"x0": draws.resized(given, batch, size, iter(first))}
            if size or common.keeps_numbers(session, sized):
                yield Life(f"batch {size}", tuple(steps), sized)
    laid = dict(draws.layouts(given))
    cases = {f"inputs {c}": laid[c] for c in ("transposed", "every second column") if c in laid}
    cases |= {"an axis in front": draws.every(given, lambda t: _in_front(t, batch))}
    for case, changed in (*cases.items(), *_axes(session, given)):
        yield _of_rank(Life(case, tuple(steps), {"x0": changed}), given)
    yield from _in_the_other_mode(session, {"ordinary inputs": given, **cases}, first)


def _axes(session: Session, given: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Other axes than the batch, longer by one, and much longer; all odd at once."""
    odd = draws.odd(given, lambda more: session.truth(more).eager is not None)
    yield from [("every axis odd", odd)] if odd is not None else []
    for name, dims, old in list(draws.dimensions(given))[:_AXES]:
        for new in (old + 1, draws.longer(given, dims, old)):
            changed = draws.resized(given, old, new, iter(dims))
            if sum(t.numel() * t.element_size() for t in tensors(changed)) < _BYTES:
                yield f"{name} = {new}", changed


def _in_front(t: torch.Tensor, batch: int) -> torch.Tensor:
    return t.unsqueeze(0) if t.dim() and t.shape[0] == batch else t


def _in_the_other_mode(
    session: Session, cases: dict[str, list[Any]], first: list[tuple[int, int]]
) -> Iterator[Life]:
    """Who evaluates with gradients has a path for that, which may be one for some shapes."""
    given, mode = session.inputs(), not session.oracle.training
    batch = tensors(given)[0].shape[0]
    sized = {f"batch {n}": draws.resized(given, batch, n, iter(first)) for n in (1, 65)}
    steps = [*begin(mode), _forward(), *_back(trained(session), "gradients")]
    for case, changed in {**cases, **sized}.items():
        where = f"{case}, in {'train' if mode else 'eval'} mode"
        yield _of_rank(Life(where, tuple(steps), {"x0": changed}), given)


def _of_rank(one: Life, given: list[Any]) -> Life:
    """Of another rank than the usual inputs' another shape is told, as by "ranks": the gradients of
    another function are not compared."""
    pairs = zip(tensors(one.inputs["x0"]), tensors(given), strict=True)
    if all(t.dim() == usual.dim() for t, usual in pairs):
        return one
    steps = tuple({**s, "see": True} if s["do"] == "call" else s for s in one.steps)
    return replace(one, steps=steps, shapes=OTHER_RANK)


TESTS: tuple[Test, ...] = (
    living(
        "cotangents",
        "backwards that take the cotangent for dense, or for of one scale",
        "Expanded, strided, tiny and large cotangents give eager's gradients; NaN and infinity do "
        "not become finite.",
        _cotangents,
        11,
    ),
    living(
        "outputs alone",
        "backwards that need all outputs",
        "The backward of each output alone.",
        _outputs,
        6,
    ),
    living(
        "two forwards",
        "a backward that reads what the last forward left",
        "Two forwards, then the backward of the first, then of the second, or of both at once; one "
        "in another thread, one when the module is gone.",
        _forwards,
        8,
    ),
    living(
        "accumulated gradients",
        "gradients overwritten instead of added, weights of an earlier forward, one buffer for all",
        "Gradients add up, to zeros, too; autograd.grad leaves them alone, and what it gave stays; "
        "weights may change between.",
        _accumulated,
        17,
    ),
    living(
        "inside a network",
        "gradients of leaves alone, backwards that read an output which the caller changed",
        "Inputs are results of other operations, of the module's own, too, views, expanded, one "
        "tensor for several, or learn; outputs, and weights, change before the backward.",
        _network,
        13,
    ),
    living(
        "forward mode",
        "tangents that are lost",
        "Along a direction of the inputs outputs have tangents, or refuse; others are told; not "
        "with --quick.",
        _forward_mode,
        2,
    ),
    living(
        "retained graph",
        "saved tensors that one backward uses up",
        "Two backwards through one graph.",
        _retained,
        3,
    ),
    living(
        "gradient penalty",
        "a second or third derivative that is silently lost",
        "Gradients of gradients are right, or refused; those of theirs are there, or refused.",
        _penalty,
        9,
    ),
    living(
        "frozen parameters",
        "gradients that depend on what else wants them",
        "Each parameter frozen alone, and trained alone; each input alone wants gradients; frozen "
        "after a backward, and thawed.",
        _frozen,
        30,
    ),
    living(
        "batches with gradients",
        "a backward for one shape or layout",
        "Gradients at other sizes of each axis, all odd, too, of one more axis and of inputs that "
        "are not contiguous, in the other mode, too.",
        _batches,
        22,
    ),
)
