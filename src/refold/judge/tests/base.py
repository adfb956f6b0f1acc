"""What a test is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure


@dataclass(frozen=True)
class Test:
    """A named test: what it catches, a sentence for the report, and how it runs.

    ``calls``: about how many calls of each model it takes, by which a budget is kept, and
    ``lives``: how many modules are built for them.
    ``quick``: part of ``--quick``. ``frugal``: also run where one reference call takes long.
    ``apart``: it gives a candidate what the reference may refuse, which native code may not
    survive; its worker is its own, and the end of that a limitation.
    ``run`` yields failures; it raises `Skip` where it does not apply.
    """

    __test__ = False

    name: str
    catches: str
    sentence: str
    run: Callable[[Session], Iterator[Failure]]
    quick: bool = True
    frugal: bool = False
    calls: int = 0
    lives: int = 0
    apart: bool = False


_DRAWS = 8


def others(session: Session) -> list[Any]:
    """Other values than those of the first inputs, of the same sizes, as a memory that holds the
    first takes them: a file may draw sizes, too. They are a later draw, else the samples in
    another order."""
    first = session.inputs()
    sizes = [t.shape for t in tensors(first)]
    for draw in range(1, _DRAWS):
        if [t.shape for t in tensors(session.cut(session.file_inputs(draw)))] == sizes:
            return session.inputs(draw)
    return [draws.every(v, lambda t: t.flip(0) if t.dim() else t.clone()) for v in first]


class Skip(Exception):
    """The test does not apply here; the text says why."""
