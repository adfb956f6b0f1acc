"""What the derivations of lives share: names of tensors, inputs by name, the usual steps."""

from __future__ import annotations

import random
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from refold.judge.draws.trees import all_finite, differ, inexact, tensors
from refold.judge.tests.base import Skip, Test
from refold.judge.truth.live import Lived
from refold.judge.verdict import alongside, life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import PERTURBED
from refold.judge.verdict.verdict import Failure
from refold.judge.worker.steps import Step

Seen = tuple[Life, Lived]
AUTOCAST = "no autocast: it computes as if there were none"
OTHER_RANK = "the reference's rank of inputs: others come out in another shape"
DTYPES = "float32 only: other dtypes come out as float32"
_WORD = re.compile(r"[\w.+-]{1,24}")
_MOST_WORDS = 8
MANY = 8  # tensors that are changed alone; of more a secret choice


def living(
    name: str,
    catches: str,
    sentence: str,
    derive: Callable[[Session], Iterator[Life]] | Callable[[Session], Iterator[Seen]],
    calls: int,
    apart: bool = False,
    lives: int = 0,
) -> Test:
    """A test that runs the lives which ``derive`` gives for a reference, each perhaps with what the
    reference showed in it; ``calls``: about how many
    calls of each model that takes; ``lives``: how many there are, where not about one for each
    four calls."""

    def run(session: Session) -> Iterator[Failure]:
        if session.truth(session.inputs()).eager is None:
            raise Skip("the reference does not take its inputs")
        before = session.cases
        yield from alongside.every(session, derive(session))
        if session.cases == before:
            raise Skip("the reference has no such life")

    each = lives or calls // 4 + 1
    return Test(name, catches, sentence, run, calls=calls, apart=apart, lives=each)


def inputs(session: Session, count: int = 2) -> dict[str, list[Any]]:
    """Draws of the inputs as ``x0``, ``x1`` ..."""
    return {f"x{i}": session.inputs(i) for i in range(count)}


def begin(train: bool | None = None, state: str = PERTURBED) -> list[Step]:
    """A new module in a state, and perhaps in a mode."""
    mode: list[Step] = [] if train is None else [{"do": "mode", "train": train}]
    return [{"do": "build", "state": state}, *mode]


def call(label: str, inputs: str = "x0", **options: Any) -> Step:
    """One forward."""
    return {"do": "call", "inputs": inputs, "label": label, **options}


def floating(session: Session, parameters: bool = True, buffers: bool = True) -> list[str]:
    """Names of the reference's floating and complex parameters and buffers in its state, one for
    each tensor; at most `MANY`, a secret choice."""
    model = session.oracle.model
    state = session.oracle.state()
    found: list[str] = []
    if parameters:
        found += [n for n, p in model.named_parameters() if _moves(p) and n in state]
    if buffers:
        found += [n for n, b in model.named_buffers() if _moves(b) and n in state]
    if len(found) > MANY:
        found = random.Random(session.secret).sample(found, MANY)
    return found


def trained(session: Session) -> list[str]:
    """Names of all floating and complex parameters that want gradients."""
    found = session.oracle.model.named_parameters()
    return [n for n, p in found if _moves(p) and p.requires_grad]


def buffers(session: Session) -> list[str]:
    """Names of all buffers that the state has."""
    state = session.oracle.state()
    return [n for n, _ in session.oracle.model.named_buffers() if n in state]


def constants(session: Session) -> list[Any]:
    """The numbers and words that the functions of the reference's own classes name; what a forward
    names comes first."""
    classes = [type(part) for part in session.oracle.model.modules()]
    own = [c for c in dict.fromkeys(classes) if c.__module__.split(".")[0] != "torch"]
    held = [f for c in own for f in vars(c).values() if isinstance(f, types.FunctionType)]
    held.sort(key=lambda f: f.__name__ != "forward")
    return [v for f in held for v in _named(f.__code__, f.__globals__)]


def _named(code: types.CodeType, known: dict[str, Any]) -> Iterator[Any]:
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _named(value, known)
        elif isinstance(value, tuple | frozenset):
            # a set's order is drawn anew in each process
            yield from sorted(value, key=repr) if isinstance(value, frozenset) else value
        else:
            yield value
    for name in code.co_names:  # of tables, as of activations by their names
        table = known.get(name)
        yield from table if isinstance(table, dict) else ()


def words(session: Session) -> list[str]:
    """The words that the reference's text compares its arguments with, and others."""
    found = [v for v in constants(session) if isinstance(v, str) and _WORD.fullmatch(v)]
    return list(dict.fromkeys(found))[:_MOST_WORDS]


def keeps_numbers(session: Session, given: dict[str, list[Any]]) -> bool:
    """Whether a call leaves numbers in the reference's buffers: where the mean of no sample is NaN,
    an honest order multiplies a parameter by it first, and another one never does."""
    names = buffers(session)
    look = {"do": "state", "names": names, "label": "buffers"}
    steps: tuple[Step, ...] = (*begin(), call("y", grad=True, see=False), look)
    seen = life.eager(session, Life("", steps, given)).seen if names else {}
    return all(all_finite(t) for t in tensors(seen.get("buffers", ("", None))[1]) if inexact(t))


def modes(session: Session) -> list[bool]:
    """Eval, where things are folded, and train if the reference differs there; both run."""
    seen = life.eager(
        session,
        Life(
            "",
            (*begin(False), call("eval"), {"do": "mode", "train": True}, call("train")),
            inputs(session, 1),
        ),
    ).seen
    if "train" not in seen:
        return [False] if "eval" in seen else [session.oracle.training]
    return [False, True] if differ(seen["eval"][1], seen["train"][1]) else [False]


def _moves(tensor: torch.Tensor) -> bool:
    return inexact(tensor) and tensor.numel() > 0
