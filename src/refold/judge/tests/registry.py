"""All tests, in the order they run: those that bring other weights in come last."""

from __future__ import annotations

from refold.judge.tests import (
    aliasing,
    cache,
    contract,
    flags,
    hostile,
    isolation,
    lattice,
    layout,
    memory,
    modes,
    mutation,
    numerics,
    plain_output,
    poison,
    reload,
    repeat,
    shapes,
    stream,
)
from refold.judge.tests.base import Test

TESTS: tuple[Test, ...] = tuple(
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
        isolation,
    )
)
# Those of the clock are declared beside it: they have no run of their own.
CLOCK_TESTS = ("work", "timed outputs")


def names() -> list[str]:
    """Every name that ``--only`` takes."""
    return [t.name for t in TESTS] + list(CLOCK_TESTS)
