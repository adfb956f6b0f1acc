"""What a process does without while a model is followed and rewritten."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Run the block without Python's search for garbage in rings. What follows, rewrites and plans
    a model makes many objects, nearly all of which are needed to the end, and the search walks all
    that a process has: of a network of 6,000 ops it took a fifth of the rewriting alone."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def unwarned() -> Iterator[None]:
    """Run the block without warnings. The model is run on examples that nobody gave it, moved and
    scaled, and in other precisions; what it warns of at the user's own calls is heard there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
