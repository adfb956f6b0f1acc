"""A class that nobody has asked for an attribute has no tag, by which its changes would be seen."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

import refold
from refold import twin


class Never:
    """Reached by forward, and never looked into."""

    def method(self) -> None: ...


class Asks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(x, Never):
            raise TypeError("never")
        made: torch.Tensor = self.layer(x).sum(1)
        return made


def test_calls_like_the_last_look_at_nothing_anew() -> None:
    """All is examined at the first call alone."""
    module, x = Asks().eval(), torch.randn(3, 8)
    fast = refold.optimize(module, x, measure=False)
    assert fast is not module
    rows = twin.namespaces(fast)[0]._RefoldRows
    made = []
    own = rows.__init__

    def counted(self: object, *args: object, **kwargs: object) -> None:
        made.append(self)
        own(self, *args, **kwargs)

    rows.__init__ = counted
    Never.written = 1  # type: ignore[attr-defined]  # it had a tag, and has none
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(fast(x), module(x))
    assert len(made) == 1


class Making(collections.OrderedDict[str, tuple[Any, ...]]):
    """Makes what it gives anew each time, and is made of one thing that it must have."""

    def __init__(self, rows: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        super().__init__(rows)

    def __getitem__(self, name: str) -> Any:
        kind, *given = super().__getitem__(name)
        return kind(*given)


MAKES = Making([("half", (complex, 0.5)), ("one", (list, (1,)))])


class Asked(Asks):
    def __init__(self) -> None:
        super().__init__()
        self.makes = Making([("third", (complex, 0.25))])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = MAKES["half"].real + self.makes["third"].real
        made: torch.Tensor = self.layer(x).sum(1) * factor
        return made


def test_a_dict_that_makes_what_it_gives_is_compared_by_what_it_holds() -> None:
    module, x = Asked().eval(), torch.randn(3, 8)
    held = dict.copy(module.makes)
    fast = refold.optimize(module, x, measure=False)
    assert fast is not module and dict.copy(module.makes) == held
    with torch.no_grad():
        for changed in (None, MAKES, module.makes):
            if changed is not None:
                key = next(iter(changed))
                changed[key] = (complex, 4.0)
            torch.testing.assert_close(fast(x), module(x))
            assert refold.status(fast).fast is (changed is None)
            MAKES["half"] = (complex, 0.5)
