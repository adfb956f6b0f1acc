"""All tests, in the order they run: those that bring other weights in come last."""

from __future__ import annotations

from refold.judge.tests.backward import far, gradients
from refold.judge.tests.base import Test
from refold.judge.tests.forms import batches, callers, calls
from refold.judge.tests.forms import modes as pytorch
from refold.judge.tests.lives import (
    constructor,
    detours,
    instances,
    outlast,
    parts,
    saved,
    training,
    weights,
)
from refold.judge.tests.once import (
    aliasing,
    cache,
    contract,
    flags,
    hostile,
    lattice,
    layout,
    modes,
    mutation,
    numerics,
    plain_output,
    poison,
    recorded,
    reload,
    repeat,
    shapes,
)
from refold.judge.tests.process import isolation, many, memory, stream
from refold.judge.tests.values import drawn, rows, special
from refold.judge.tests.values import weights as sizes

ONCE: tuple[Test, ...] = tuple(
    module.TEST
    for module in (
        contract,
        plain_output,
        numerics,
        recorded,
        shapes,
        layout,
        hostile,
        mutation,
        aliasing,
        cache,
        poison,
        repeat,
        stream,
        flags,
        memory,
        modes,
        reload,
        lattice,
    )
)
LIVES: tuple[Test, ...] = (
    *weights.TESTS,
    *detours.TESTS,
    *training.TESTS,
    *parts.TESTS,
    *instances.TESTS,
    *saved.TESTS,
    *constructor.TESTS,
    *outlast.TESTS,
)
BACKWARD: tuple[Test, ...] = (*gradients.TESTS, *far.TESTS)
FORMS: tuple[Test, ...] = (*calls.TESTS, *pytorch.TESTS, *callers.TESTS, *batches.TESTS)
VALUES: tuple[Test, ...] = (*drawn.TESTS, *special.TESTS, *sizes.TESTS, *rows.TESTS)
_ALL = (*ONCE, *LIVES, *BACKWARD, *FORMS, *VALUES, *many.TESTS)
TESTS: tuple[Test, ...] = (
    *(t for t in _ALL if not t.apart),
    isolation.TEST,
    *(t for t in _ALL if t.apart),
)
# Those of the clock are declared beside it: they have no run of their own.
CLOCK_TESTS = ("work", "timed outputs")


def names() -> list[str]:
    """Every name that ``--only`` takes."""
    return [t.name for t in TESTS] + list(CLOCK_TESTS)
