"""What a process does without while a model is followed, rewritten and compiled."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager


class Meanwhile(ContextDecorator):
    """A change of the process while any thread is in it: the first to come makes it, the last to go
    undoes it. Were each thread to put back what it had found, one that came while another was in
    it would put back the change, for good."""

    def __init__(self, change: Callable[[], AbstractContextManager[None]]) -> None:
        self.change, self.lock, self.inside = change, threading.Lock(), 0
        self.made: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.made = self.change()
                self.made.__enter__()
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0 and self.made is not None:
                self.made.__exit__(None, None, None)


@contextmanager
def _uncollected() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    yield
    if enabled:
        gc.enable()


@contextmanager
def _unwarned() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Without Python's search for garbage in rings. What follows, rewrites and plans a model makes many
# objects, nearly all of which are needed to the end, and the search walks all that a process has:
# of a network of 6,000 ops it took a fifth of the rewriting alone.
uncollected = Meanwhile(_uncollected)

# Without warnings. The model is run on examples that nobody gave it, moved and scaled, and in other
# precisions; what it warns of at the user's own calls is heard there.
unwarned = Meanwhile(_unwarned)
