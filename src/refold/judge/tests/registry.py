"""All tests, in the order they run: those that bring other weights in come last."""

from __future__ import annotations

from refold.judge.tests.backward import gradients
from refold.judge.tests.base import Test
from refold.judge.tests.forms import calls
from refold.judge.tests.lives import instances, parts, training, weights
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
    reload,
    repeat,
    shapes,
)
from refold.judge.tests.process import isolation, many, memory, stream
from refold.judge.tests.values import drawn

ONCE: tuple[Test, ...] = tuple(
    module.TEST
    for module in (
        contract,
        plain_output,
        numerics,
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
LIVES: tuple[Test, ...] = (*weights.TESTS, *training.TESTS, *parts.TESTS, *instances.TESTS)
BACKWARD: tuple[Test, ...] = gradients.TESTS
FORMS: tuple[Test, ...] = calls.TESTS
VALUES: tuple[Test, ...] = drawn.TESTS
TESTS = (*ONCE, *VALUES, *LIVES, *BACKWARD, *FORMS, *many.TESTS, isolation.TEST)
# Those of the clock are declared beside it: they have no run of their own.
CLOCK_TESTS = ("work", "timed outputs")


def names() -> list[str]:
    """Every name that ``--only`` takes."""
    return [t.name for t in TESTS] + list(CLOCK_TESTS)
