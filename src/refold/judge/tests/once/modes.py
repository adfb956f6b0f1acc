"""modes: train and eval, running statistics, gradients."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch

from refold.judge import draws
from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule.compare import acquitted, compare
from refold.judge.tests.base import Test
from refold.judge.truth.copies import digest
from refold.judge.truth.truth import Truth
from refold.judge.verdict import otherwise
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire.host import Raised
from refold.judge.worker.backward import OtherOutputs

_FEW = 256  # elements, as in `session.Session.spread`
_KINDS = {OtherOutputs.__name__: Status.WRONG_CONTRACT}
_LAID = ("dense", "sparse")
INFERENCE_ONLY = "inference only: no gradients where the reference has them"


def run(session: Session) -> Iterator[Failure]:
    """Outputs and buffers in each mode, and with nothing frozen, then gradients in the file's
    own."""
    inputs = session.inputs()
    for training in (True, False):
        name = "train" if training else "eval"
        yield from session.check(name, inputs, Status.WRONG_MODE, training=training)
        yield from _buffers(session, name, training)
    yield from _other_batches(session)
    yield from _thawed(session)
    yield from _gradients(session)


def _thawed(session: Session) -> Iterator[Failure]:
    """After a call of ``train()``, which thaws what the constructor has frozen."""
    model = session.oracle.model
    built = [(module, module.training) for module in model.modules()]
    if len({training for _, training in built}) == 1:
        return
    inputs = list(session.inputs())  # truths are known by their inputs: these are of this mode
    session.enter(training=True)
    model.train(True)
    try:
        truth = session.truth(inputs, training=True)
    finally:
        for module, training in built:
            module.training = training
    if truth.eager is None or truth.exact is None:
        return
    host, state = session.worker(), session.state(session.base_state)
    host.request("load_state", state=state, how="strict", unsaved=session.unsaved())
    host.request("move", how="thaw")
    try:
        host.request("put", slot="t", inputs=inputs)
        reply = host.request("call", slot="t", seed=session.seed + 7)
        case = "after train(), which thaws frozen parts"
        yield from session.compared(case, reply["outputs"], truth, Status.WRONG_MODE)
        yield from _held_alike(session, truth, "a call after train()")
    finally:
        session.entered("")
        session.forget_mode()


def _buffers(session: Session, name: str, training: bool) -> Iterator[Failure]:
    inputs = session.inputs()
    truth = session.truth(inputs, training=training)
    if truth.eager is None or truth.exact is None or not truth.eager.buffers:
        return
    host = session.worker()
    state = session.base_state
    host.request("load_state", state=session.state(state), how="strict", unsaved=session.unsaved())
    session.entered(state)
    session.call(inputs, training=training)
    yield from _held_alike(session, truth, f"a call in {name} mode")
    state_of = dict(session.state(state))
    for i, word in enumerate(("two", "three")):
        # from where eager's last call left them: what moves on by halves or now and then shows
        assert truth.eager is not None
        state_of |= _kept(session, truth)
        unsaved = session.unsaved().items()
        if any(not torch.equal(v, truth.eager.buffers.get(k, v)) for k, v in unsaved):
            break  # no state brings the reference there
        if all(torch.equal(v, session.state(state)[k]) for k, v in _kept(session, truth).items()):
            break
        session.add_state("further", dict(state_of))
        fresh = session.inputs(i + 1)
        truth = session.truth(fresh, "further", training)
        if truth.eager is None or truth.exact is None:
            break
        host.request("put", slot="b", inputs=fresh)
        host.request("call", slot="b", seed=session.seed + 7)
        yield from _held_alike(session, truth, f"{word} calls in {name} mode")
    session.entered("")


def _other_batches(session: Session) -> Iterator[Failure]:
    """The buffers that calls of other batch sizes leave in train mode: a larger one, and one of the
    secret."""
    given = session.inputs()
    truth = session.truth(given, training=True)
    written = truth.eager is not None and any(
        not torch.equal(v, session.state(session.base_state)[k])
        for k, v in _kept(session, truth).items()
    )
    if not written:
        return
    drawn = draws.larger_batch(given), random.Random(session.secret ^ 1).randrange(5, 200)
    wanted = {f"batch {size}" for size in drawn}
    host = session.worker()
    for case, inputs in draws.shapes(given, True, drawn):
        if case not in wanted:
            continue
        truth = session.truth(inputs, training=True)
        if truth.eager is None or truth.exact is None:
            continue
        host.request(
            "load_state",
            state=session.state(session.base_state),
            how="strict",
            unsaved=session.unsaved(),
        )
        session.entered(session.base_state)
        session.call(inputs, training=True)
        yield from _held_alike(session, truth, f"a call of {case} in train mode")
    session.entered("")


def _kept(session: Session, truth: Truth) -> dict[str, torch.Tensor]:
    assert truth.eager is not None
    held = session.state(session.base_state)
    return {k: v for k, v in truth.eager.buffers.items() if k in held}


def _held_alike(session: Session, truth: Truth, when: str) -> Iterator[Failure]:
    """The worker's buffers beside those of a truth."""
    assert truth.eager is not None and truth.exact is not None
    after = session.worker().request("state")
    for key, value in truth.eager.buffers.items():
        if key not in after:
            continue
        session.cases += 1
        case, exact = f"{key} after {when}", truth.exact.buffers[key]
        for failure in agree(session, case, truth, key, after[key], value, exact):
            session.plain.moves_wrongly = True
            yield failure


def _gradients(session: Session) -> Iterator[Failure]:
    inputs, mode = session.inputs(), session.oracle.training
    yield from _gradients_in(session, mode)
    runs = [session.truth(inputs, training=training).eager for training in (True, False)]
    told = [run and [digest(t) for t in tensors(run.outputs)] for run in runs]
    if None not in told and told[0] != told[1]:
        yield from _gradients_in(session, not mode)


def _gradients_in(session: Session, training: bool) -> Iterator[Failure]:
    """Of everything at once; in the file's own mode then of the inputs, of the parameters alone:
    most training wants none of its inputs, and frozen layers want none of their weights."""
    inputs, own = session.inputs(), training == session.oracle.training
    truth = session.truth(inputs, training=training, grad=True)
    if truth.eager is None or truth.exact is None or not truth.eager.grads:
        return
    where = "" if own else f" in {'train' if training else 'eval'} mode"
    every = truth.eager.grads
    right: dict[str, str] = {}  # digests of what was compared and is right
    for of in ("all", "inputs", "parameters") if own else ("all",):
        wanted = {
            k: v
            for k, v in every.items()
            if of == "all" or (of == "inputs") == k.startswith("input ")
        }
        if not wanted or (of != "all" and len(wanted) == len(every)):
            continue
        session.cases += 1
        alone = "" if of == "all" else f" of {of} alone"
        try:
            reply = session.call(inputs, training=training, grad=truth.cotangents, of=of)
        except Raised as error:
            missing = "does not require grad" in str(error) or error.kind == "NotImplementedError"
            if of == "all" and missing:
                session.assumptions.add(INFERENCE_ONLY + where)
                return
            kind = Status.WRONG_MODE if missing else _KINDS.get(error.kind, Status.CRASHED)
            yield session.fail(kind, f"gradients{alone}{where}", f"raised {error}")
            continue
        for one in reply.get("written by the backward", ()):
            case = f"gradients{alone}{where}"
            yield session.fail(Status.MUTATES, case, f"the backward writes to {one}")
        yield from session.compared(f"output with gradients wanted{where}", reply["outputs"], truth)
        grads = reply.get("grads", {})
        if of == "all" and not grads:
            session.assumptions.add(INFERENCE_ONLY + where)
            return
        other = {*reply["sparse"]} ^ {*truth.eager.sparse}
        for name in sorted(other & grads.keys() & wanted.keys()):
            thin = name in truth.eager.sparse
            detail = f"expected a {_LAID[thin]} gradient, came a {_LAID[not thin]} one"
            yield session.fail(
                Status.WRONG_MODE, f"layout of the gradient of {name}{where}", detail
            )
        for name in sorted(grads.keys() - every.keys() if of == "all" else ()):
            if bool(torch.any(grads[name] != 0)):
                detail = "it has one, where the reference gives none"
                yield session.fail(Status.WRONG_MODE, f"gradient of {name}{where}", detail)
        for name, value in wanted.items():
            case = f"gradient of {name}{alone and ', ' + of + ' alone'}{where}"
            if name not in grads:
                if bool(torch.any(value != 0)):
                    yield session.fail(Status.WRONG_MODE, case, "missing")
                continue
            told = digest(grads[name])
            if right.get(name) == told and grads[name].dtype == value.dtype:
                continue  # as large as the weights, and it was compared before
            exact = truth.exact.grads[name]
            wrong = list(agree(session, case, truth, name, grads[name], value, exact))
            yield from wrong
            if not wrong and grads[name].shape == value.shape:
                right[name] = told


def agree(
    session: Session,
    case: str,
    truth: Truth,
    name: str,
    got: torch.Tensor,
    value: torch.Tensor,
    exact: torch.Tensor,
    status: Status = Status.WRONG_MODE,
    said: str = "",
) -> Iterator[Failure]:
    """Compare a buffer or gradient. Of few elements eager's error may be small by luck: before it
    condemns, what a unit in the last place of inputs and weights does counts as eager's."""
    if acquitted(got, value):
        return
    slopes = "" if name.startswith("input ") else None
    results = compare(name, got, value, exact, session.spread_of(truth, name), slopes=slopes)
    if (
        inexact(value)
        and value.numel() < _FEW
        and any(not r.agrees and not r.structural for r in results)
    ):
        spread = session.spread_of(truth, name, always=True)
        results = compare(name, got, value, exact, spread, slopes=slopes)
    if _is_slope(truth, name, value) and any(not r.agrees and not r.structural for r in results):
        other = otherwise.slope(session, truth, name)
        if other is not None and all(
            r.agrees for r in compare(name, got, other, exact, slopes=slopes)
        ):
            return
    for result in results:
        if not result.agrees:
            kind = status if result.structural else session.named(status)
            yield session.fail(kind, case, said + result.reason, result.worst)


def _is_slope(truth: Truth, name: str, value: torch.Tensor) -> bool:
    return truth.eager is not None and truth.eager.grads.get(name) is value


TEST = Test(
    "modes",
    "train or eval ignored, running statistics, wrong gradients",
    "Both modes, the buffers after a call, and gradients where the reference has them.",
    run,
)
